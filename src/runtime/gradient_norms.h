#pragma once

// Squared norms of the gradients, from which every rank computes the same global norm for clipping. If several ranks
// hold a gradient, only the rank that owns the parameter (owners_of() in model/parameter_group.h) counts it. There is
// one number per parameter, not one sum. So the global norm has the same bits for every division of the model into
// stages, and an infinite or NaN norm names its parameter. StepReduction sums the numbers over all ranks.

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "model/parameter_group.h"
#include "runtime/worker_context.h"

namespace chimera {

/// Returns the sum of squares in float64, in an order that depends only on the number of elements. Several times faster
/// than ATen's float64 norm of float32.
[[nodiscard]] double sum_of_squares(const at::Tensor& tensor);

/// Returns the sum of squares of each tensor, [tensors], in float64 on their device, without waiting for it.
[[nodiscard]] at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors);

/// Copies the numbers to `device` as flat float64, on the calling thread's current stream. Never waits for a device.
[[nodiscard]] at::Tensor on_device(std::span<const double> numbers, at::Device device);

/// Squared gradient norms of this rank: one number per model parameter (ProgramShape::parameters), or one per parameter
/// group (the parameters of a stage, or the tied matrix) if the parameters have no names. The number of a parameter is
/// 0 except on the rank that owns it; after a reduce-scatter, only this rank has the gradient.
class GradientNorms {
 public:
  using Groups = std::map<ParameterGroupId, ParameterGroup*>;

  /// Borrows shape and groups.
  GradientNorms(const ProgramShape& shape, WorkerId worker, const Groups& groups)
      : shape_(shape), worker_(worker), groups_(groups) {}

  /// Returns how many numbers there are, one per parameter or group.
  [[nodiscard]] std::size_t count() const {
    return shape_.parameters.empty() ? shape_.groups.size() : shape_.parameters.size();
  }
  /// Adds this rank's numbers for a step to `values` [count()] (zeros, float64, on the gradients' device), without
  /// waiting for the device. These are the numbers that note_update() has collected for the step, which are then
  /// dropped. Without any, they are the squared norms of the current gradients, or 0 if `has_gradients` is false.
  void take(std::int64_t step, bool has_gradients, at::Tensor values);
  /// Called before an update of one stage in an asynchronous schedule: returns the norm of the group's current
  /// gradients. The first rank of the group (reports_on()) also adds their squared norms, divided by the number of
  /// updates in a step, to the numbers of the step. Only on the CPU.
  double note_update(ParameterGroupId id, std::int64_t step);

  /// Returns what the number with index `square` belongs to, for messages: "the gradient of wte.weight", or "the
  /// gradient of stage 3".
  [[nodiscard]] std::string describe(std::size_t square) const;
  /// Returns whether this rank throws the error if the number with index `square` is not finite: it is the first rank
  /// with this gradient.
  [[nodiscard]] bool reports_on(std::size_t square) const;

 private:
  [[nodiscard]] bool reports_on(ParameterGroupId id) const;
  /// Counts the parameters that owners_of() gives to rank number `member` when it divides the group over `members`.
  void add(ParameterGroupId id, std::size_t members, std::size_t member, at::Tensor values);

  const ProgramShape& shape_;
  WorkerId worker_;
  const Groups& groups_;
  std::unordered_map<std::int64_t, at::Tensor> updates_;  // by step: sums of squares so far
  // [parameter group, members]: numbers of the parameters that this rank counts, on their device
  std::map<std::pair<ParameterGroupId, std::size_t>, at::Tensor> numbers_;
};

}  // namespace chimera
