#pragma once

#include <ATen/core/Tensor.h>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/parameter_group.h"
#include "runtime/canonical_sums.h"

// What a gradient norm is made of.

// One worker's part in the gradient norms of a step.

namespace chimera {

/// The sum of the squares of all elements, in float64, in an order that depends on their number alone. It is written
/// out here because ATen's norm of float32 in float64 takes several times as long as reading the memory.
[[nodiscard]] double sum_of_squares(const at::Tensor& tensor);

/// The same of several tensors of a device that is not the CPU, in an order of the device's: [tensors], in float64,
/// there. Nobody waits for it.
[[nodiscard]] at::Tensor sums_of_squares(const std::vector<at::Tensor>& tensors);

/// The part of a list's elements that one of several members sums: of the list of all elements, cut into equal runs,
/// the parameters whose middle lies in its run. A matrix that is half of the list, first or last in it, is one member's
/// then, and the rest another's.
struct SquaresShare {
  std::int64_t member = 0;
  std::int64_t members = 1;
  /// Whether it has the parameter of `count` elements from `first` on, of `elements` in all.
  [[nodiscard]] bool has(std::int64_t first, std::int64_t count, std::int64_t elements) const {
    return (2 * first + count) * members / (2 * elements) == member;
  }
};

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
