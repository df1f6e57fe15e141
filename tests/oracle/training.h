#pragma once
// A plain training loop: the whole mini-batch through the whole model at once, torch's own AdamW, and LAMB
// written out.

#include <cstdint>
#include <string>
#include <vector>

#include "oracle/model.h"

namespace oracle {

/// What weight decay acts on.
enum class Decay { Matrices, NoEmbeddings, All };

enum class Optimizer { AdamW, Lamb };

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
  Optimizer optimizer = Optimizer::AdamW;
  double minimum = 0.001;  ///< of the learning rate
  double weight_decay = 0.01;
  Decay decay = Decay::Matrices;
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-8;
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
