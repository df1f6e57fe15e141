#pragma once
// How `chimera train` updates weights: --optimizer and what belongs to it, and the learning rate.

#include <CLI/CLI.hpp>

#include <cstdint>
#include <vector>

#include "engine/optimizer_options.h"

namespace chimera::apps {

struct OptimizerFlags {
  double minimum = 0;  // --min-learning-rate
  CLI::Option* minimum_option = nullptr;
  std::int64_t cooldown = 0;  // --cooldown
  CLI::Option* cooldown_option = nullptr;
  CLI::Option* cooldown_shape_option = nullptr;
  std::vector<CLI::Option*> of_adam = {};  // that plain SGD does not take

  /// `optimizer` and `rate` hold the defaults, and take what is given, but for what complete() adds.
  void add_to(CLI::App& app, OptimizerOptions& optimizer, LearningRate& rate);
  /// Throws ConfigError for flags that mean nothing to the optimizer.
  void complete(const OptimizerOptions& optimizer, LearningRate& rate) const;
};

}  // namespace chimera::apps
