#pragma once
// How weights are updated, and at which rate (engine/learning_rate.h).

#include <string>

#include "core/choices.h"
#include "engine/learning_rate.h"
#include "engine/weight_decay.h"

namespace chimera {

struct OptimizerOptions {
  OptimizerKind kind = OptimizerKind::AdamW;
  double weight_decay = 0;
  DecayedWeights decayed = DecayedWeights::Matrices;  // what weight_decay acts on
  double beta1 = 0.9;     // AdamW, LAMB: how much of a gradient's running mean is kept from step to step, in [0, 1)
  double beta2 = 0.999;   // likewise of its square's
  double epsilon = 1e-8;  // added to the root of the latter, above 0
};

/// What makes these options impossible, such as "beta1 must be at least 0 and below 1, not 1"; empty: nothing does.
[[nodiscard]] std::string fault_of(const OptimizerOptions& options);

}  // namespace chimera
