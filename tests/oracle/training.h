#pragma once
// A plain training loop: the whole mini-batch through the whole model at once, torch's own AdamW.

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/model.h"

namespace oracle {

/// What `chimera train` is asked for, as its --help explains it.
struct Recipe {
  Architecture architecture;
  std::string text;
  std::uint64_t seed = 1;
  std::int64_t sequence = 24;
  std::int64_t samples = 16;  ///< of a step
  std::int64_t steps = 5;
  double learning_rate = 0.01;
  std::int64_t warmup = 2;
  double weight_decay = 0.01;
  double clip = 0.5;
};

/// What became of it; numbers by step, those of validations after each step.
struct Course {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  std::vector<double> learning_rates;
  std::vector<double> validation_losses;
  Weights weights;
};

[[nodiscard]] Course train(const Recipe& recipe);

}  // namespace oracle
