#pragma once
// How weights are updated, and at which rate.

#include <cstdint>

#include "core/choices.h"

namespace chimera {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double weight_decay = 0;  // on matrices only
};

/// The learning rate over a run.
struct LearningRate {
  double peak = 1e-3;
  std::int64_t warmup = 0;  // steps of linear warm-up; then a cosine down to a tenth of the peak

  /// That of a step (from 0) of a run of `steps`.
  [[nodiscard]] double at(std::int64_t step, std::int64_t steps) const;
};

}  // namespace chimera
