#pragma once

// Sums the numbers of a step over all workers, for the instruction ReduceScalars: losses, squared gradient norms,
// memory, requests for a checkpoint (SaveVotes in step_hooks.h), and whether a GPU graph of the step must be recorded
// again (RecordedSteps). Every worker needs these sums, so one collective carries all of them. On a device, it is the
// only time in a step that the host waits. If a loss or norm is not finite, a second collective finds the op that made
// the first such value.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "runtime/gradient_norms.h"
#include "runtime/non_finite.h"
#include "runtime/step_hooks.h"
#include "runtime/worker_context.h"

namespace chimera {

/// Numbers that are summed over all workers once per step. Before the sum, a worker sets its own elements, and the
/// others are 0. pack() keeps the order of the fields.
struct StepSums {
  std::vector<double> squares;             ///< Squared gradient norms (GradientNorms)
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
  explicit StepReduction(const WorkerContext& worker)
      : worker_(worker), norms_(worker.shape, worker.worker, worker.groups) {}

  /// Calls GradientNorms::note_update().
  double note_update(ParameterGroupId group, std::int64_t step) { return norms_.note_update(group, step); }

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

  const WorkerContext& worker_;
  GradientNorms norms_;
};

}  // namespace chimera
