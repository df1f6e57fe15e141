#include "runtime/step_reduction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/fault_point.h"
#include "core/mapped.h"

namespace chimera {
namespace {

constexpr std::vector<double> StepSums::*kFields[] = {&StepSums::squares,
                                                      &StepSums::losses,
                                                      &StepSums::peak_memory,
                                                      &StepSums::used_memory,
                                                      &StepSums::allocation_retries,
                                                      &StepSums::shared,
                                                      &StepSums::votes,
                                                      &StepSums::recordings};

}  // namespace

std::vector<double> StepSums::pack() const {
  std::vector<double> numbers;
  for (const auto field : kFields) numbers.insert(numbers.end(), (this->*field).begin(), (this->*field).end());
  return numbers;
}

void StepSums::unpack(std::span<const double> numbers) {
  for (const auto field : kFields) {
    std::ranges::copy(numbers.first((this->*field).size()), (this->*field).begin());
    numbers = numbers.subspan((this->*field).size());
  }
}

at::Tensor StepSums::squares_in(const at::Tensor& packed) const { return packed.narrow(0, 0, std::ssize(squares)); }

at::Tensor StepSums::loss_in(const at::Tensor& packed, std::size_t loss) const {
  return packed.narrow(0, static_cast<std::int64_t>(squares.size() + loss), 1);
}

bool StepSums::are_finite() const {
  return std::ranges::all_of(pack(), [](double value) { return std::isfinite(value); });
}

StepSums StepReduction::own_numbers(const StepHooks& hooks) const {
  const RankLayout& ranks = worker_.shape.ranks;
  const auto num_ranks = static_cast<std::size_t>(ranks.data_parallel * ranks.workers);
  const auto micro_batches = static_cast<std::size_t>(ranks.data_parallel * worker_.shape.micro_batches);
  // Each worker fills its own element, so that the sum over all workers is a gather, from which each takes the maximum.
  const std::size_t own =
      worker_.shape.group.index() * static_cast<std::size_t>(ranks.workers) + worker_.worker.index();
  StepSums sums{.squares = std::vector<double>(norms_.count(), 0),
                .losses = std::vector<double>(micro_batches, 0),
                .peak_memory = std::vector<double>(num_ranks, 0),
                .used_memory = std::vector<double>(num_ranks, 0),
                .allocation_retries = std::vector<double>(num_ranks, 0),
                .shared = {hooks.shared.begin(), hooks.shared.end()}};
  if (hooks.votes != nullptr) sums.votes = hooks.votes->pack();
  // Other ranks of the same worker (tensor parallelism) report for it.
  if (!worker_.shape.counts_whole) return sums;
  sums.peak_memory[own] = hooks.observation.peak_memory();
  if (hooks.observation.used_memory) sums.used_memory[own] = hooks.observation.used_memory();
  if (hooks.observation.allocation_retries) sums.allocation_retries[own] = hooks.observation.allocation_retries();
  return sums;
}

/// On a device, losses and norms are still being computed. They are copied into the packed numbers there, so that the
/// sum is the only wait of the host.
StepSums StepReduction::sum(std::int64_t step, bool trains, StepLosses& losses, std::vector<double> recordings,
                            const StepHooks& hooks) {
  StepSums sums = own_numbers(hooks);
  sums.recordings = std::move(recordings);
  const at::Tensor all = on_device(sums.pack(), worker_.device());
  const std::int64_t micro_batches = worker_.shape.micro_batches;
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    const auto loss = losses.extract(MicroBatchId(step * micro_batches + m));
    // extract() has removed the loss on every rank, counted or not.
    if (loss && worker_.shape.counts_whole) {
      const std::int64_t number = worker_.shape.group.value() * micro_batches + m;
      sums.loss_in(all, static_cast<std::size_t>(number)).copy_(loss.mapped());
    }
  }
  if (trains) fault_point("vote");
  norms_.take(step, trains, sums.squares_in(all));  // Updates may come from an earlier piece
  sums.unpack(worker_.transport.sum_to_host(all, hooks.observation.before_wait));
  return sums;
}

NonFiniteResult StepReduction::find_non_finite(std::span<const double> squares, const std::vector<Op>& suspects) const {
  const ProgramShape& shape = worker_.shape;
  const auto order = spread_order(shape.ranks.data_parallel, shape.micro_batches, shape.stages());
  const auto suspect_at = [&](const GroupOp& place) {
    if (place.group != shape.group) return suspects.end();
    return std::ranges::find_if(suspects, [&](const Op& op) {
      // Later steps of a program continue the numbers of micro-batches, and the order is of one step.
      return op.stage == place.op.stage &&
             op.micro_batch.value() % shape.micro_batches == place.op.micro_batch.value() &&
             (op.kind == OpKind::Forward) == (place.op.kind == OpKind::Forward);
    });
  };
  auto found = mapped<double>(order, [&](const GroupOp& place) { return suspect_at(place) != suspects.end(); });
  worker_.transport.all_sum(found);
  // All ranks see the same marks, so all find the same first op without another message.
  const auto first =
      static_cast<std::size_t>(std::ranges::find_if(found, [](double ranks) { return ranks > 0; }) - found.begin());
  if (first < found.size()) {
    const auto& [group, op] = order[first];
    NonFiniteResult result{.what = describe_result(op, shape.stages())};
    if (shape.ranks.data_parallel > 1) result.what += fmt::format(" of data-parallel group {}", group.value());
    const auto own = suspect_at(order[first]);
    result.is_own = own != suspects.end();
    if (result.is_own) result.op = *own;
    return result;
  }
  // No op had a bad result, so the value arose in a weight gradient, whose norm names its parameter.
  const auto finite = [](double square) { return std::isfinite(square); };
  const auto square = static_cast<std::size_t>(std::ranges::find_if_not(squares, finite) - squares.begin());
  if (square < squares.size()) return {.what = norms_.describe(square), .is_own = norms_.reports_on(square)};
  return {.what = "the gradient norm", .is_own = worker_.worker == WorkerId(0) && shape.group == GroupId(0)};
}

}  // namespace chimera
