#pragma once
// A plain training loop: the whole mini-batch through the whole model, torch's AdamW, and an explicit LAMB.

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/model.h"

namespace oracle {

/// The parameters with weight decay.
enum class Decay { Matrices, NoEmbeddings, All };

enum class Optimizer { AdamW, Lamb };

/// The options of `chimera train`, as its --help explains them.
struct Recipe {
  Architecture architecture;
  std::string text;
  std::uint64_t seed = 1;
  std::int64_t sequence = 24;
  std::int64_t samples = 16;  ///< per step
  std::int64_t steps = 5;
  double learning_rate = 0.01;
  std::int64_t warmup = 2;
  Optimizer optimizer = Optimizer::AdamW;
  double minimum = 0.001;  ///< of the learning rate
  double weight_decay = 0.01;
  Decay decay = Decay::Matrices;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
  double clip = 0.5;
};

/// Results by step; validation losses after each step.
struct Course {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  std::vector<double> learning_rates;
  std::vector<double> validation_losses;
  Weights weights;
};

[[nodiscard]] Course train(const Recipe& recipe);

}  // namespace oracle
