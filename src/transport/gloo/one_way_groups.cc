#include "transport/gloo/one_way_groups.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <vector>

namespace chimera {
namespace {

using Work = c10::intrusive_ptr<c10d::Work>;

void add_others(OneWayGroups& groups, std::vector<at::Tensor>& sum, int tag, std::chrono::milliseconds timeout,
                ConnectionBreaker* breaker) {
  const int ranks = groups.up->getSize();
  std::vector<std::vector<at::Tensor>> others;
  std::vector<Work> works;
  for (int rank = 1; rank < ranks; ++rank) {
    others.push_back({at::empty_like(sum.front())});
    works.push_back(groups.down->recv(others.back(), rank, tag));
  }
  for (std::size_t i = 0; i < others.size(); ++i) {
    wait_for(*works[i], timeout, breaker);
    sum.front().add_(others[i].front());
  }
  works.clear();
  for (int rank = 1; rank < ranks; ++rank) works.push_back(groups.up->send(sum, rank, tag));
  for (const Work& work : works) wait_for(*work, timeout, breaker);
}

}  // namespace

void sum_over_ranks(OneWayGroups& groups, std::span<double> values, int tag, std::chrono::milliseconds timeout,
                    ConnectionBreaker* breaker) {
  std::vector<at::Tensor> sum{at::empty({static_cast<std::int64_t>(values.size())}, at::kDouble)};
  double* numbers = sum.front().data_ptr<double>();
  std::copy(values.begin(), values.end(), numbers);
  if (groups.up->getRank() == 0) {
    add_others(groups, sum, tag, timeout, breaker);
  } else {
    wait_for(*groups.down->send(sum, 0, tag), timeout, breaker);
    wait_for(*groups.up->recv(sum, 0, tag), timeout, breaker);
  }
  std::copy_n(numbers, values.size(), values.begin());
}

}  // namespace chimera
