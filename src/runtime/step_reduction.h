#pragma once

// Sums the numbers of a step over all workers, for the instruction ReduceScalars: losses, squared gradient norms,
// memory, requests for a checkpoint (SaveVotes in step_hooks.h), and whether a GPU graph of the step must be recorded
// again (RecordedSteps). Every worker needs these sums, so one collective carries all of them. On a device, it is the
// only time in a step that the host waits. If a loss or norm is not finite, a second collective finds the op that made
// the first such value.
//
// From the squared gradient norms, every rank computes the same global norm for clipping. If several ranks hold a
// gradient, only the rank that owns the parameter (owners_of() in model/parameter_group.h) counts it. There is one
// number per parameter, not one sum. So the global norm has the same bits for every division of the model into stages,
// and an infinite or NaN norm names its parameter.

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/parameter_group.h"
#include "runtime/non_finite.h"
#include "runtime/step_hooks.h"
#include "runtime/worker_context.h"

namespace chimera {

/// Returns the sum of squares in float64, in an order that depends only on the number of elements. Several times faster
/// than ATen's float64 norm of float32.
[[nodiscard]] double sum_of_squares(const at::Tensor& tensor);

/// Returns the sum of squares of each tensor, [tensors], in float64 on their device, without waiting for it.
[[nodiscard]] at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors);

/// Copies the numbers to `device` as flat float64, on the calling thread's current stream. Never waits for a device.
[[nodiscard]] at::Tensor on_device(std::span<const double> numbers, at::Device device);

/// Numbers that are summed over all workers once per step. Before the sum, a worker sets its own elements, and the
/// others are 0. pack() keeps the order of the fields.
struct StepSums {
  /// Squared gradient norms: one per model parameter (ProgramShape::parameters), or one per parameter group (the
  /// parameters of a stage, or the tied matrix) if the parameters have no names. A worker sets those of the parameters
  /// that it owns; after a reduce-scatter, only this rank has the gradient.
  std::vector<double> squares;
  std::vector<double> losses;              ///< [data-parallel group][micro-batch]
  std::vector<double> peak_memory;         ///< [group][worker], bytes
  std::vector<double> used_memory;         ///< [group][worker], bytes
  std::vector<double> allocation_retries;  ///< [group][worker]
  std::vector<double> shared = {};         ///< StepHooks::shared
  std::vector<double> votes = {};          ///< SaveVotes::pack(). Empty on all workers or on none
  /// Number of ranks whose next step needs a new recording (RecordedSteps). Empty on all workers or on none
  std::vector<double> recordings = {};

  [[nodiscard]] std::vector<double> pack() const;
  /// Reads numbers in the order of pack(); the sizes of the fields stay.
  void unpack(std::span<const double> numbers);
  /// Returns a view of the squares in a packed tensor.
  [[nodiscard]] at::Tensor squares_in(const at::Tensor& packed) const;
  /// Returns element `loss` of StepSums::losses in a packed tensor, as a view of one element.
  [[nodiscard]] at::Tensor loss_in(const at::Tensor& packed, std::size_t loss) const;
  /// Returns whether all numbers are finite.
  [[nodiscard]] bool are_finite() const;
};

/// First result of a step that was not finite.
struct NonFiniteResult {
  std::string what;     ///< Equal on all ranks: "the output of stage 1 for micro-batch 3", "the gradient of wte.weight"
  bool is_own = false;  ///< Whether this rank made it, or throws the error for it; true on one rank
  std::optional<Op> op = {};  ///< The op that made it, if is_own
};

/// Numbers of a worker's steps, and their sums. Steps count from 0 within the program. Borrows the context.
class StepReduction {
 public:
  explicit StepReduction(const WorkerContext& worker) : worker_(worker) {}

  /// Called before an update of one stage in an asynchronous schedule: returns the norm of the group's current
  /// gradients. The first rank of the group (reports_on()) also adds their squared norms, divided by the number of
  /// updates in a step, to the numbers of the step. Only on the CPU.
  double note_update(ParameterGroupId id, std::int64_t step);

  /// Returns the sums of `step`; collective over all workers of all data-parallel groups. Removes the losses of this
  /// step from `losses`. `trains`: whether there are gradients. `recordings` is StepSums::recordings of this worker.
  [[nodiscard]] StepSums sum(std::int64_t step, bool trains, StepLosses& losses, std::vector<double> recordings,
                             const StepHooks& hooks);

  /// Finds the source of a non-finite loss or gradient norm: the first op in spread_order(), else a gradient.
  /// Collective over all workers. `suspects` holds this worker's ops in the step with non-finite results, `squares` the
  /// step's summed squared norms.
  [[nodiscard]] NonFiniteResult find_non_finite(std::span<const double> squares, const std::vector<Op>& suspects) const;

 private:
  [[nodiscard]] StepSums own_numbers(const StepHooks& hooks) const;
  /// Returns how many squared gradient norms there are (StepSums::squares).
  [[nodiscard]] std::size_t num_squares() const {
    return worker_.shape.parameters.empty() ? worker_.shape.groups.size() : worker_.shape.parameters.size();
  }
  /// Adds this rank's squared norms for a step to `values` [num_squares()] (zeros, float64, on the gradients' device),
  /// without waiting for the device. These are the numbers that note_update() has collected for the step, which are
  /// then dropped. Without any, they are the squared norms of the current gradients, or 0 if `has_gradients` is false.
  void take_squares(std::int64_t step, bool has_gradients, at::Tensor values);
  /// Counts the parameters that owners_of() gives to rank number `member` when it divides the group over `members`.
  void add_squares(ParameterGroupId id, std::size_t members, std::size_t member, at::Tensor values);
  /// Returns what the squared norm with index `square` belongs to, for messages: "the gradient of wte.weight", or "the
  /// gradient of stage 3".
  [[nodiscard]] std::string describe(std::size_t square) const;
  /// Returns whether this rank throws the error if the squared norm with index `square` is not finite: it is the first
  /// rank with this gradient.
  [[nodiscard]] bool reports_on(std::size_t square) const;
  [[nodiscard]] bool reports_on(ParameterGroupId id) const;

  const WorkerContext& worker_;
  std::unordered_map<std::int64_t, at::Tensor> updates_;  // by step: sums of squares so far
  // [parameter group, members]: numbers of the parameters that this rank counts, on their device
  std::map<std::pair<ParameterGroupId, std::size_t>, at::Tensor> numbers_;
};

}  // namespace chimera
