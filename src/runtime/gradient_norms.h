#pragma once

// Squared norms of the gradients, from which every rank gets the same global norm for clipping. A gradient that several
// replicas hold is counted once, by the rank that owns the parameter. The numbers stay apart by parameter, so that the
// global norm has the same bits for every division of the model into stages, and so that an infinite or NaN norm names
// its parameter. StepReduction sums them over all ranks.

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

/// Returns the sums of squares of device tensors, [tensors], in float64 on the device, without waiting.
[[nodiscard]] at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors);

/// Copies the numbers to `device` as flat float64, on the calling thread's current stream. Never waits for a device.
[[nodiscard]] at::Tensor on_device(std::span<const double> numbers, at::Device device);

/// Squared gradient norms, summed over all ranks: one per model parameter (ProgramShape::parameters), or per parameter
/// group without names. Each gradient is counted by its owner (owners_of), which alone has it after a reduce-scatter.
class GradientNorms {
 public:
  using Groups = std::map<ParameterGroupId, ParameterGroup*>;

  /// Borrows shape and groups.
  GradientNorms(const ProgramShape& shape, WorkerId worker, const Groups& groups)
      : shape_(shape), worker_(worker), groups_(groups) {}

  [[nodiscard]] std::size_t count() const {
    return shape_.parameters.empty() ? shape_.groups.size() : shape_.parameters.size();
  }
  /// Adds this rank's numbers for a step to `values` [count()] (zeros, float64, on the gradients' device) without
  /// waiting, and forgets the updates of the step. If there were no updates, uses the current gradients if any.
  void take(std::int64_t step, bool has_gradients, at::Tensor values);
  /// Notes an update of the group by its current gradients, one of ProgramShape::updates in the step. Returns their
  /// norm. Only on the CPU.
  double note_update(ParameterGroupId id, std::int64_t step);

  /// Describes number `square`: "the gradient of stage 3", or of a parameter.
  [[nodiscard]] std::string describe(std::size_t square) const;
  /// Returns whether this rank is the first that holds the number, and so reports on it.
  [[nodiscard]] bool reports_on(std::size_t square) const;

 private:
  /// Place among the ranks that divide the parameters of a group.
  struct SquaresShare {
    std::size_t member = 0;
    std::size_t members = 1;
  };
  [[nodiscard]] bool reports_on(ParameterGroupId id) const;
  [[nodiscard]] SquaresShare share_of(ParameterGroupId id) const;
  void add(ParameterGroupId id, const SquaresShare& share, at::Tensor values);

  const ProgramShape& shape_;
  WorkerId worker_;
  const Groups& groups_;
  std::unordered_map<std::int64_t, at::Tensor> updates_;  // by step: sums of squares so far
  // [group, members of the share]: indices of the counted parameters, on their device
  std::map<std::pair<ParameterGroupId, std::size_t>, at::Tensor> numbers_;
};

}  // namespace chimera
