#include "runtime/step_sums.h"

#include <ATen/ATen.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/fault_point.h"
#include "runtime/executor.h"
#include "runtime/gradient_norms.h"
#include "runtime/memory_meter.h"
#include "runtime/non_finite.h"

namespace chimera {

std::vector<double> StepSums::pack() const {
  std::vector<double> numbers = squares;
  numbers.insert(numbers.end(), losses.begin(), losses.end());
  numbers.insert(numbers.end(), peak_memory.begin(), peak_memory.end());
  numbers.insert(numbers.end(), used_memory.begin(), used_memory.end());
  if (votes) std::ranges::copy(votes->pack(), std::back_inserter(numbers));
  if (recordings) numbers.push_back(*recordings);
  return numbers;
}

void StepSums::unpack(std::span<const double> numbers) {
  for (std::vector<double>* field : {&squares, &losses, &peak_memory, &used_memory}) {
    std::ranges::copy(numbers.first(field->size()), field->begin());
    numbers = numbers.subspan(field->size());
  }
  if (votes) {
    votes = SaveVotes::unpack(numbers.first<SaveVotes::kNumbers>());
    numbers = numbers.subspan(SaveVotes::kNumbers);
  }
  if (recordings) recordings = numbers.front();
}

at::Tensor StepSums::squares_in(const at::Tensor& packed) const { return packed.narrow(0, 0, std::ssize(squares)); }

at::Tensor StepSums::loss_in(const at::Tensor& packed, std::size_t loss) const {
  return packed.narrow(0, static_cast<std::int64_t>(squares.size() + loss), 1);
}

bool StepSums::are_finite() const {
  const auto is_finite = [](double value) { return std::isfinite(value); };
  return std::ranges::all_of(squares, is_finite) && std::ranges::all_of(losses, is_finite) &&
         std::ranges::all_of(peak_memory, is_finite) && std::ranges::all_of(used_memory, is_finite);
}

// On a device, the numbers stay there until the sum, the host's only wait of a step.
StepSums Executor::sum_numbers(std::int64_t step, const StepHooks& hooks) {
  const auto groups = static_cast<std::size_t>(shape_.ranks.data_parallel);
  const auto workers = static_cast<std::size_t>(shape_.ranks.workers);
  const auto micro_batches = static_cast<std::size_t>(shape_.micro_batches);
  StepSums sums{.squares = std::vector<double>(norms_.count(), 0),
                .losses = std::vector<double>(groups * micro_batches, 0),
                .peak_memory = std::vector<double>(groups * workers, 0),
                .used_memory = std::vector<double>(groups * workers, 0)};
  if (hooks.votes != nullptr) sums.votes = *hooks.votes;
  if (hooks.record) sums.recordings = recorded_.needs_recording() ? 1.0 : 0.0;
  const std::size_t own = shape_.group.index() * workers + worker_.index();
  sums.peak_memory[own] = hooks.peak_memory();
  if (hooks.used_memory) sums.used_memory[own] = hooks.used_memory();
  std::map<std::size_t, at::Tensor> losses;  // by index
  for (std::size_t m = 0; m < micro_batches; ++m) {
    if (auto loss = losses_.extract(MicroBatchId(step * shape_.micro_batches + static_cast<std::int64_t>(m)))) {
      losses[shape_.group.index() * micro_batches + m] = std::move(loss.mapped());
    }
  }
  if (trains_) fault_point("vote");
  const at::Device device = groups_.begin()->second->gradients().device();
  if (!device.is_cpu()) {
    const at::Tensor all = on_device(sums.pack(), device);
    norms_.take(step, trains_, sums.squares_in(all));
    for (const auto& [number, loss] : losses) sums.loss_in(all, number).copy_(loss);
    sums.unpack(transport_.sum_to_host(all, hooks.before_wait));
    return sums;
  }
  sums.squares = norms_.take(step, trains_);  // updates may come from an earlier piece
  for (const auto& [number, loss] : losses) sums.losses[number] = loss.item<double>();
  std::vector<double> numbers = sums.pack();
  transport_.all_sum(numbers);
  sums.unpack(numbers);
  return sums;
}

void Executor::reduce_scalars(std::int64_t step, const StepHooks& hooks) {
  const std::int64_t first = step * shape_.micro_batches;
  StepSums sums = sum_numbers(step, hooks);
  if (hooks.votes != nullptr) *hooks.votes = *sums.votes;
  if (sums.recordings.value_or(0) > 0) recorded_.record_again();
  const auto suspects = non_finite_.take_before(MicroBatchId(first + shape_.micro_batches));
  if (!sums.are_finite()) handle_non_finite(sums.squares, suspects, hooks.step + step, hooks);
  double square = 0;
  for (const double value : sums.squares) square += value;
  result_.gradient_norm = std::sqrt(square);
  result_.losses = std::move(sums.losses);
  result_.peak_memory_bytes = std::ranges::max(sums.peak_memory);
  result_.used_memory_bytes = std::ranges::max(sums.used_memory);
}

namespace {

/// First result of a step that was not finite.
struct NonFiniteResult {
  std::string what;     ///< Equal on all ranks: "the output of stage 1 for micro-batch 3", "the gradient of wte.weight"
  bool is_own = false;  ///< This rank made it, or reports it; true on one rank
  std::optional<Op> op = {};  ///< The op that made it, if is_own
};

/// Finds the source of a non-finite loss or gradient norm: the first op in SpreadOrder, else a gradient. Collective
/// over all ranks. `suspects` holds this worker's ops in the step with non-finite results, `squares` the step's summed
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
  if (source.op) current_ = {.kind = InstructionKind::Compute, .op = *source.op};
  if (source.is_own) throw Error(what + "; try a lower --learning-rate");
  std::array<double, 1> nothing{};
  transport_.all_sum(nothing);  // blocks until its worker has failed, so that no other worker ends first
  throw PeerLostError(what);
}

}  // namespace chimera
