#pragma once

// Several versions of a stage's weights, for asynchronous schedules. A stage updates its weights while micro-batches
// that began with earlier weights are still in the pipeline; their backwards need the weights of their forwards. The
// executor (executor.h) has one WeightVersions per stage, and calls it for the instructions UpdateWeights and
// DropWeights and before each op.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "model/stage.h"

namespace chimera {

/// Versions of a stage's weights (weight stashing). The parameters stay the same autograd leaves with the same
/// gradients; only the memory of their values changes. Before a backward, use() must restore the version of its
/// forward.
///
/// update() hides its writes from autograd, which would reject backwards of earlier forwards. This is safe, because
/// check() (check/check_program.h) proves that every op finds the version that it needs. A version that is not kept is
/// an InternalError.
class WeightVersions {
 public:
  /// The current values are version `newest`. Borrows the stage.
  WeightVersions(Stage& stage, std::int32_t newest);

  [[nodiscard]] std::int32_t newest() const { return newest_; }
  /// Makes the parameters have the values of a kept version.
  void use(std::int32_t version);
  /// Drops a version that is no longer used. The values of the newest version stay until update() replaces them.
  void drop(std::int32_t version);
  /// Creates version newest() + 1: `change` modifies the parameters in place, starting from the newest values. The old
  /// version is kept unless it was dropped.
  void update(const std::function<void()>& change);

 private:
  using Values = std::vector<at::Tensor>;  // [parameter]

  [[nodiscard]] Values take_out_version(std::int32_t version);
  void put(const Values& values);

  Stage& stage_;
  std::int32_t newest_;
  std::int32_t in_use_;
  bool newest_is_dropped_ = false;
  std::map<std::int32_t, Values> held_;  // kept values, by version
  std::vector<Values> spare_;            // memory of dropped versions
};

}  // namespace chimera
