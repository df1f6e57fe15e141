
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/fault_point.h"
#include "runtime/executor.h"
#include "runtime/gradient_norms.h"
#include "runtime/memory_meter.h"
#include "runtime/non_finite.h"

namespace chimera {

// Each worker fills in its own numbers: squared norms (GradientNorms), losses [groups][micro-batches], memory
// [groups][workers], the hooks' sums. On a device they stay there until the sum, the host's only wait of a step.
std::vector<double> Executor::sum_numbers(std::int64_t step, const StepHooks& hooks, std::size_t num_losses) {
  const std::size_t squares = norms_.count();
  const auto workers = static_cast<std::size_t>(shape_.ranks.workers);
  const std::size_t own_losses = squares + shape_.group.index() * static_cast<std::size_t>(shape_.micro_batches);
  std::vector<double> values(squares + num_losses + static_cast<std::size_t>(shape_.ranks.data_parallel) * workers, 0);
  values[squares + num_losses + shape_.group.index() * workers + worker_.index()] = hooks.peak_memory();
  values.insert(values.end(), hooks.sums.begin(), hooks.sums.end());
  std::map<std::int64_t, at::Tensor> losses;  // by index
  for (std::int64_t m = 0; m < shape_.micro_batches; ++m) {
    if (auto loss = losses_.extract(MicroBatchId(step * shape_.micro_batches + m))) {
      losses[static_cast<std::int64_t>(own_losses) + m] = std::move(loss.mapped());
    }
  }
  if (trains_) fault_point("vote");
  const at::Device device = groups_.begin()->second->gradients().device();
  if (!device.is_cpu()) {
    const at::Tensor all = on_device(values, device);
    norms_.take(step, trains_, all.narrow(0, 0, static_cast<std::int64_t>(squares)));
    for (const auto& [number, loss] : losses) all.narrow(0, number, 1).copy_(loss);
    return transport_.sum_to_host(all, hooks.before_wait);
  }
  std::ranges::copy(norms_.take(step, trains_), values.begin());  // updates may come from an earlier piece
  for (const auto& [number, loss] : losses) values[static_cast<std::size_t>(number)] = loss.item<double>();
  transport_.all_sum(values);
  return values;
}

void Executor::reduce_scalars(std::int64_t step, const StepHooks& hooks) {
  const std::size_t squares = norms_.count();
  const auto num_losses = static_cast<std::size_t>(shape_.ranks.data_parallel * shape_.micro_batches);
  const std::int64_t first = step * shape_.micro_batches;
  std::vector<double> values = sum_numbers(step, hooks, num_losses);
  std::copy(values.end() - static_cast<std::ptrdiff_t>(hooks.sums.size()), values.end(), hooks.sums.begin());
  values.resize(values.size() - hooks.sums.size());
  const auto suspects = non_finite_.take_before(MicroBatchId(first + shape_.micro_batches));
  const auto is_finite = [](double value) { return std::isfinite(value); };
  if (!std::all_of(values.begin(), values.end(), is_finite)) {
    handle_non_finite(std::span(values).first(squares), suspects, hooks.step + step, hooks);
  }

  const auto losses = values.begin() + static_cast<std::ptrdiff_t>(squares);
  const auto memory = losses + static_cast<std::ptrdiff_t>(num_losses);
  double square = 0;
  for (auto value = values.begin(); value != losses; ++value) square += *value;
  result_.gradient_norm = std::sqrt(square);
  result_.losses.assign(losses, memory);
  result_.peak_memory_bytes = *std::max_element(memory, values.end());
}

namespace {

/// First result of a step that was not finite.
struct NonFiniteResult {
  std::string what;     ///< Equal on all ranks: "the output of stage 1 for micro-batch 3", "the gradient of wte.weight"
  bool is_own = false;  ///< This rank made it, or reports it; true on one rank
  std::optional<Op> op = {};  ///< The op that made it, if is_own
};

/// Finds the source of a non-finite loss or gradient norm: the first op in SpreadOrder, else a gradient. Collective
/// over all ranks. `suspects`: this worker's ops in the step with non-finite results; `squares`: the step's summed
/// squared norms (GradientNorms).
NonFiniteResult find_non_finite(const ProgramShape& shape, WorkerId worker, const GradientNorms& norms,
                                std::span<const double> squares, const std::vector<Op>& suspects,
                                Transport& transport) {
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
    NonFiniteResult result{.what = describe_result(op, shape.stages())};
    if (shape.ranks.data_parallel > 1) result.what += fmt::format(" of data-parallel group {}", group.value());
    const auto own = std::ranges::find(suspects, first, index_of);
    result.is_own = own != suspects.end();
    if (result.is_own) result.op = *own;
    return result;
  }
  const auto finite = [](double square) { return std::isfinite(square); };
  const auto square = static_cast<std::size_t>(std::ranges::find_if_not(squares, finite) - squares.begin());
  if (square < squares.size()) return {.what = norms.describe(square), .is_own = norms.reports_on(square)};
  return {.what = "the gradient norm", .is_own = worker == WorkerId(0) && shape.group == GroupId(0)};
}

}  // namespace

void Executor::handle_non_finite(std::span<const double> squares, const std::vector<Op>& suspects, std::int64_t step,
                                 const StepHooks& hooks) {
  const NonFiniteResult source = find_non_finite(shape_, worker_, norms_, squares, suspects, transport_);
  const std::string what = fmt::format("{} is not finite in step {}", source.what, step);
  if (hooks.skip_non_finite) {
    hooks.skip_non_finite(what, source.is_own);
    result_.is_skipped = true;
    return;
  }
  if (source.op) {
    blamed_ = {InstructionKind::Compute, *source.op};
    current_ = &blamed_;
  }
  if (source.is_own) throw Error(what + "; try a lower --learning-rate");
  std::array<double, 1> nothing{};
  transport_.all_sum(nothing);  // blocks until its worker has failed, so that no other worker ends first
  throw PeerLostError(what);
}

}  // namespace chimera
