// What the executor does once a loss or the gradient norm is not finite.

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "core/error.h"
#include "runtime/executor.h"

namespace chimera {

// All workers come here together, as all have the same sums; one more sum tells all of them the same culprit.
void Executor::blame_non_finite(std::span<const double> squares, const std::vector<Op>& suspects, std::int64_t step) {
  const std::int64_t num_stages = last_stage_.value() + 1;
  const SpreadOrder order(shape_.ranks.data_parallel, shape_.micro_batches, num_stages);
  std::vector<double> found(order.size(), 0);
  const auto index_of = [&](Op op) {
    op.micro_batch = MicroBatchId(op.micro_batch.value() % shape_.micro_batches);
    return order.index(shape_.group, op);
  };
  for (const Op& op : suspects) found[index_of(op)] = 1;
  transport_.all_sum(found);
  const auto first = static_cast<std::size_t>(std::find(found.begin(), found.end(), 1) - found.begin());
  const auto finite = [](double square) { return std::isfinite(square); };
  const auto square =
      static_cast<std::size_t>(std::find_if_not(squares.begin(), squares.end(), finite) - squares.begin());
  std::string what = "the gradient norm";
  bool mine = worker_ == WorkerId(0) && shape_.group == GroupId(0);
  if (first < found.size()) {
    const auto [group, op] = order.place(first);
    what = describe_result(op, num_stages);
    if (shape_.ranks.data_parallel > 1) what += fmt::format(" of data-parallel group {}", group.value());
    const auto place = std::find_if(suspects.begin(), suspects.end(),
                                    [&](const Op& candidate) { return index_of(candidate) == first; });
    mine = place != suspects.end();
    if (mine) {
      blamed_ = {InstructionKind::Compute, *place, WorkerId(0)};
      current_ = &blamed_;
    }
  } else if (square < squares.size()) {
    what = shape_.parameters.empty() ? fmt::format("the gradient of stage {}", square)
                                     : "the gradient of " + shape_.parameters[square];
    mine = answers_for_gradient(square);
  }
  what += fmt::format(" is not finite in step {}", step);
  if (mine) throw Error(what + "; try a lower --learning-rate");
  std::array<double, 1> nothing{};
  transport_.all_sum(nothing);  // the culprit does not come: no other worker ends before it
  throw PeerLostError(what);
}

bool Executor::answers_for_gradient(std::size_t square) const {
  if (shape_.group != GroupId(0)) return false;
  for (const auto& [id, group] : groups_) {
    if (shape_.groups[id.index()].front() != worker_) continue;
    if (shape_.parameters.empty()) {
      if (id.index() == square) return true;
      continue;
    }
    const auto& own = group->parameters();
    const std::string& name = shape_.parameters[square];
    if (std::any_of(own.begin(), own.end(), [&](const Parameter& p) { return p.name == name; })) return true;
  }
  return false;
}

}  // namespace chimera
