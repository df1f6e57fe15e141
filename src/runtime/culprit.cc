#include "runtime/culprit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/non_finite.h"

namespace chimera {

Culprit find_culprit(const ProgramShape& shape, WorkerId worker, const GradientNorms& norms,
                     std::span<const double> squares, const std::vector<Op>& suspects, Transport& transport) {
  const SpreadOrder order(shape.ranks.data_parallel, shape.micro_batches, shape.stages());
  std::vector<double> found(order.size(), 0);
  const auto index_of = [&](Op op) {
    op.micro_batch = MicroBatchId(op.micro_batch.value() % shape.micro_batches);
    return order.index(shape.group, op);
  };
  for (const Op& op : suspects) found[index_of(op)] = 1;
  transport.all_sum(found);
  const auto first = static_cast<std::size_t>(std::ranges::find(found, 1) - found.begin());
  if (first < found.size()) {
    const auto [group, op] = order.place(first);
    Culprit culprit{.what = describe_result(op, shape.stages())};
    if (shape.ranks.data_parallel > 1) culprit.what += fmt::format(" of data-parallel group {}", group.value());
    const auto own = std::ranges::find(suspects, first, index_of);
    culprit.is_own = own != suspects.end();
    if (culprit.is_own) culprit.op = *own;
    return culprit;
  }
  const auto finite = [](double square) { return std::isfinite(square); };
  const auto square = static_cast<std::size_t>(std::ranges::find_if_not(squares, finite) - squares.begin());
  if (square < squares.size()) return {.what = norms.describe(square), .is_own = norms.reports_on(square)};
  return {.what = "the gradient norm", .is_own = worker == WorkerId(0) && shape.group == GroupId(0)};
}

}  // namespace chimera
