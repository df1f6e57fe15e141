#pragma once
// --checkpoint and --resume with the flags beside them: what a run saves, and what it goes on from.

#include <CLI/CLI.hpp>

#include <vector>

#include "train/setup/options.h"

namespace chimera::apps {

struct CheckpointFlags {
  std::vector<CLI::Option*> details;  // that say when checkpoints are saved, and which stay
  CLI::Option* other_data = nullptr;
  CLI::Option* spike_skip = nullptr;
  CLI::Option* recoveries = nullptr;

  void add_to(CLI::App& app, TrainOptions& options);
  /// Throws ConfigError where details are given without what they are of, or keep nothing.
  void require_sense(const TrainOptions& options) const;
};

}  // namespace chimera::apps
