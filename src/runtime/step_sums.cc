
#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <map>

#include "core/error.h"
#include "core/fault_point.h"
#include "runtime/culprit.h"
#include "runtime/executor.h"
#include "runtime/memory_meter.h"

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

void Executor::handle_non_finite(std::span<const double> squares, const std::vector<Op>& suspects, std::int64_t step,
                                 const StepHooks& hooks) {
  const Culprit culprit = find_culprit(shape_, worker_, norms_, squares, suspects, transport_);
  const std::string what = fmt::format("{} is not finite in step {}", culprit.what, step);
  if (hooks.skip_non_finite) {
    hooks.skip_non_finite(what, culprit.is_own);
    result_.is_skipped = true;
    return;
  }
  if (culprit.op) {
    blamed_ = {InstructionKind::Compute, *culprit.op};
    current_ = &blamed_;
  }
  if (culprit.is_own) throw Error(what + "; try a lower --learning-rate");
  std::array<double, 1> nothing{};
  transport_.all_sum(nothing);  // blocks until the culprit has failed, so that no other worker ends first
  throw PeerLostError(what);
}

}  // namespace chimera
