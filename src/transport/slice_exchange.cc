#include "transport/slice_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>

#include "transport/ordered_sum.h"

namespace chimera {
namespace {

/// Rounds up, so that only the last slices are shorter: 10 elements for 4 members are 3, 3, 3 and 1.
std::vector<std::int64_t> equal_counts(std::int64_t elements, std::int64_t members) {
  const std::int64_t slice = (elements + members - 1) / members;
  std::vector<std::int64_t> counts;
  for (std::int64_t m = 0; m < members; ++m) counts.push_back(std::clamp<std::int64_t>(elements - m * slice, 0, slice));
  return counts;
}

/// Returns the parts in the order of SliceExchange::outgoing_: for each member, its slice of every part. A single part
/// is in this order already.
at::Tensor pack(const std::vector<at::Tensor>& parts, const std::vector<std::int64_t>& counts,
                const at::TensorOptions& options) {
  if (parts.empty()) return at::empty({0}, options);
  if (parts.size() == 1) return parts.front();
  std::vector<at::Tensor> pieces;
  std::int64_t offset = 0;
  for (const std::int64_t count : counts) {
    for (const at::Tensor& part : parts) pieces.push_back(part.narrow(0, offset, count));
    offset += count;
  }
  return at::cat(pieces);
}

}  // namespace

// With one part each, a member sends (n-1)/n of the gradients and then, in an all-reduce, its sum to n-1 members: as
// many bytes as a ring, but every element is added once, on one member, in an order that does not depend on the
// network.
SliceExchange::SliceExchange(c10d::Backend& group, const GradientSum& sum, std::chrono::milliseconds timeout)
    : order_(*sum.order),
      counts_(sum.scatters() ? sum.counts : equal_counts(sum.gradients.numel(), group.getSize())),
      own_first_(std::accumulate(counts_.begin(), counts_.begin() + group.getRank(), std::int64_t{0})),
      own_count_(counts_[static_cast<std::size_t>(group.getRank())]),
      outgoing_(pack(sum.parts, counts_, sum.gradients.options())) {
  std::vector<std::int64_t> sent;  // c10d may move from these lists
  std::vector<std::int64_t> received;
  std::int64_t arriving = 0;
  for (const std::int64_t count : counts_) sent.push_back(static_cast<std::int64_t>(sum.parts.size()) * count);
  for (const auto& trees : order_.parts) {
    received.push_back(static_cast<std::int64_t>(trees.size()) * own_count_);
    arriving += received.back();
  }
  arrived_ = at::empty({arriving}, sum.gradients.options());
  c10d::AllToAllOptions options;
  if (timeout != kNoTimeout) options.timeout = timeout;
  work_ = group.alltoall_base(arrived_, outgoing_, received, sent, options);
}

at::Tensor SliceExchange::add() {
  if (own_count_ == 0) return at::empty({0}, arrived_.options());
  std::vector<std::vector<at::Tensor>> slices;
  std::int64_t offset = 0;
  for (const auto& trees : order_.parts) {
    auto& of_member = slices.emplace_back();
    for (std::size_t part = 0; part < trees.size(); ++part, offset += own_count_)
      of_member.push_back(arrived_.narrow(0, offset, own_count_));
  }
  return add_in_order(order_, slices);
}

SumOrder one_part_each(std::int64_t members) {
  SumOrder order;
  for (std::int64_t member = 0; member < members; ++member)
    order.parts.push_back(std::vector<Subtree>{Subtree{.level = 0, .index = member}});
  return order;
}

}  // namespace chimera
