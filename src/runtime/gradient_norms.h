#pragma once

// Squared norms of the gradients, from which every rank gets the same global norm for clipping. A gradient that several
// replicas hold is counted once, by the rank that owns the parameter. The numbers stay apart by parameter, so that the
// global norm has the same bits for every division of the model into stages, and so that an infinite or NaN norm names
// its parameter. StepReduction sums them over all ranks.

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/parameter_group.h"
#include "runtime/canonical_sums.h"

namespace chimera {

/// Returns the sum of squares in float64, in an order that depends only on the number of elements. Several times faster
/// than ATen's float64 norm of float32.
[[nodiscard]] double sum_of_squares(const at::Tensor& tensor);

/// Returns the sums of squares of device tensors, [tensors], in float64 on the device, without waiting.
[[nodiscard]] at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors);

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
  /// Returns this rank's numbers for a step and forgets its updates. If there were no updates, uses the current
  /// gradients, or zeros unless `has_gradients`.
  [[nodiscard]] std::vector<double> take(std::int64_t step, bool has_gradients);
  /// Adds the same numbers to `values` [count()] (float64, on the gradients' device), without waiting.
  void take(std::int64_t step, bool has_gradients, at::Tensor values);
  /// Notes an update of the group by its current gradients, one of ProgramShape::updates in the step. Returns their
  /// norm.
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
  double add(ParameterGroupId id, const SquaresShare& share, std::vector<double>& values) const;
  void add(ParameterGroupId id, const SquaresShare& share, at::Tensor values);
  [[nodiscard]] std::vector<Parameter> counted(ParameterGroupId id, const SquaresShare& share) const;
  [[nodiscard]] std::size_t number_of(ParameterGroupId id, const Parameter& parameter) const;

  const ProgramShape& shape_;
  WorkerId worker_;
  const Groups& groups_;
  std::unordered_map<std::int64_t, std::vector<double>> updates_;  // by step: sums of squares so far
  std::unordered_map<ParameterGroupId, at::Tensor> numbers_;       // indices of the counted parameters, on their device
};

}  // namespace chimera
