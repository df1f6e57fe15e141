#pragma once
// Weight stashing: the versions of one stage's weights that micro-batches in flight began with, and the newest.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <vector>

#include "model/stage.h"

namespace chimera {

/// Keeps versions of a stage's parameter values and puts one of them into the parameters. The parameters stay the same
/// autograd leaves with the same gradients; what changes is the memory that their values lie in. An activation saves
/// the leaves, so whoever runs its backward puts the version of its forward back first.
///
/// Values are written without autograd's taking note (update() below), which would otherwise refuse every backward
/// whose forward came before: check() has proved that every op finds the version that it must use.
class WeightVersions {
 public:
  /// The stage's present values are version `newest`. The stage is borrowed.
  WeightVersions(Stage& stage, std::int32_t newest);

  [[nodiscard]] std::int32_t newest() const { return newest_; }
  /// Puts a version that is held into the parameters.
  void use(std::int32_t version);
  /// Forgets a version: nothing uses it any more. The newest keeps its values until it is replaced.
  void drop(std::int32_t version);
  /// Makes version newest() + 1: `change` writes to the parameters, which hold the newest values, in place. These stay
  /// as they are, unless they were dropped.
  void update(const std::function<void()>& change);

 private:
  using Values = std::vector<at::Tensor>;  // [parameter]

  void begin_update();
  void put(const Values& values);

  Stage& stage_;
  std::int32_t newest_;
  std::int32_t in_use_;
  bool newest_is_dropped_ = false;
  std::map<std::int32_t, Values> held_;
  std::vector<Values> spare_;  // memory of dropped versions
};

}  // namespace chimera
