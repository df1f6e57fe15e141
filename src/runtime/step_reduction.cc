#include "runtime/step_reduction.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "core/fault_point.h"
#include "runtime/memory_meter.h"

namespace chimera {

StepSums StepReduction::own_numbers(const StepHooks& hooks) const {
  const RankLayout& ranks = worker_.shape.ranks;
  const auto num_ranks = static_cast<std::size_t>(ranks.data_parallel * ranks.workers);
  const auto micro_batches = static_cast<std::size_t>(ranks.data_parallel * worker_.shape.micro_batches);
  const std::size_t own =
      worker_.shape.group.index() * static_cast<std::size_t>(ranks.workers) + worker_.worker.index();
  StepSums sums{.squares = std::vector<double>(norms_.count(), 0),
                .losses = std::vector<double>(micro_batches, 0),
                .peak_memory = std::vector<double>(num_ranks, 0),
                .used_memory = std::vector<double>(num_ranks, 0)};
  if (hooks.votes != nullptr) sums.votes = *hooks.votes;
  sums.peak_memory[own] = hooks.observation.peak_memory();
  if (hooks.observation.used_memory) sums.used_memory[own] = hooks.observation.used_memory();
  return sums;
}

// On a device, the numbers stay there until the sum.
StepSums StepReduction::sum(std::int64_t step, bool trains, StepLosses& losses, std::optional<double> recordings,
                            const StepHooks& hooks) {
  StepSums sums = own_numbers(hooks);
  sums.recordings = recordings;
  const std::int64_t micro_batches = worker_.shape.micro_batches;
  std::map<std::size_t, at::Tensor> own_losses;  // By index in StepSums::losses
  for (std::int64_t m = 0; m < micro_batches; ++m) {
    if (auto loss = losses.extract(MicroBatchId(step * micro_batches + m))) {
      own_losses[static_cast<std::size_t>(worker_.shape.group.value() * micro_batches + m)] = std::move(loss.mapped());
    }
  }
  if (trains) fault_point("vote");
  const at::Device device = worker_.device();
  if (!device.is_cpu()) {
    const at::Tensor all = on_device(sums.pack(), device);
    norms_.take(step, trains, sums.squares_in(all));
    for (const auto& [number, loss] : own_losses) sums.loss_in(all, number).copy_(loss);
    sums.unpack(worker_.transport.sum_to_host(all, hooks.observation.before_wait));
    return sums;
  }
  sums.squares = norms_.take(step, trains);  // Updates may come from an earlier piece
  for (const auto& [number, loss] : own_losses) sums.losses[number] = loss.item<double>();
  std::vector<double> numbers = sums.pack();
  worker_.transport.all_sum(numbers);
  sums.unpack(numbers);
  return sums;
}

NonFiniteResult StepReduction::find_non_finite(std::span<const double> squares, const std::vector<Op>& suspects) const {
  const ProgramShape& shape = worker_.shape;
  const SpreadOrder order(shape.ranks.data_parallel, shape.micro_batches, shape.stages());
  std::vector<double> found(order.size(), 0);
  const auto index_of = [&](Op op) {
    op.micro_batch = MicroBatchId(op.micro_batch.value() % shape.micro_batches);
    return order.index(shape.group, op);
  };
  for (const Op& op : suspects) found[index_of(op)] = 1;
  worker_.transport.all_sum(found);
  const auto first = static_cast<std::size_t>(std::ranges::find(found, 1) - found.begin());
  if (first < found.size()) {
    const auto [group, op] = order.place(first);
    NonFiniteResult result{.what = describe_result(op, shape.stages())};
    if (shape.ranks.data_parallel > 1) result.what += fmt::format(" of data-parallel group {}", group.value());
    const auto own = std::ranges::find(suspects, first, index_of);
    result.is_own = own != suspects.end();
    if (result.is_own) result.op = *own;
    return result;
  }
  const auto finite = [](double square) { return std::isfinite(square); };
  const auto square = static_cast<std::size_t>(std::ranges::find_if_not(squares, finite) - squares.begin());
  if (square < squares.size()) return {.what = norms_.describe(square), .is_own = norms_.reports_on(square)};
  return {.what = "the gradient norm", .is_own = worker_.worker == WorkerId(0) && shape.group == GroupId(0)};
}

}  // namespace chimera
