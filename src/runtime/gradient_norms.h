#pragma once
// One worker's part in the gradient norms of a step.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/parameter_group.h"
#include "runtime/program_shape.h"
#include "runtime/sum_of_squares.h"

namespace chimera {

/// Squared norms of gradients, as every rank hands them into one sum over all ranks: a number for each of the model's
/// parameters (ProgramShape::parameters), or where these have no names for each parameter group. A norm is the root of
/// their sum, so each gradient is counted by one rank alone.
class GradientNorms {
 public:
  using Groups = std::map<ParameterGroupId, ParameterGroup*>;

  /// `groups`: what the worker trains. Shape and groups are borrowed.
  GradientNorms(const ProgramShape& shape, WorkerId worker, const Groups& groups)
      : shape_(shape), worker_(worker), groups_(groups) {}

  /// Numbers that every rank hands in.
  [[nodiscard]] std::size_t count() const {
    return shape_.parameters.empty() ? shape_.groups.size() : shape_.parameters.size();
  }
  /// This rank's numbers for a step: squared norms of the updates noted in it, which are then forgotten. Without
  /// updates, those of the present gradients, or zeros where nothing has made any (`has_gradients`).
  [[nodiscard]] std::vector<double> take(std::int64_t step, bool has_gradients);
  /// The same on the device of the gradients, where that is not the CPU: adds them to `values` [count()], in float64,
  /// which is there too. Nobody waits for it.
  void take(std::int64_t step, bool has_gradients, at::Tensor values);
  /// Notes that the group is about to be updated by its present gradients, one of ProgramShape::updates in that step.
  /// Returns their norm.
  double note_update(ParameterGroupId id, std::int64_t step);

  /// "the gradient of stage 3", or of a parameter: number `square` in words.
  [[nodiscard]] std::string describe(std::size_t square) const;
  /// Whether this rank reports on that number: the first of those that hold what it counts.
  [[nodiscard]] bool answers_for(std::size_t square) const;

 private:
  [[nodiscard]] bool answers_for(ParameterGroupId id) const;
  [[nodiscard]] SquaresShare share_of(ParameterGroupId id) const;
  double add(ParameterGroupId id, const SquaresShare& share, std::vector<double>& values) const;
  void add(ParameterGroupId id, const SquaresShare& share, at::Tensor values);
  /// Those whose gradients this share counts.
  [[nodiscard]] std::vector<Parameter> counted(ParameterGroupId id, const SquaresShare& share) const;
  /// The number of a parameter of the group.
  [[nodiscard]] std::size_t number_of(ParameterGroupId id, const Parameter& parameter) const;

  const ProgramShape& shape_;
  WorkerId worker_;
  const Groups& groups_;
  std::unordered_map<std::int64_t, std::vector<double>> updates_;  // by step: squares of its updates so far
  std::unordered_map<ParameterGroupId, at::Tensor> numbers_;       // of the parameters counted, on their device
};

}  // namespace chimera
