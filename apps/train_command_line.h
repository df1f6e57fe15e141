#pragma once
// The flags of `chimera train`.

#include <CLI/CLI.hpp>

#include <string>

#include "checkpoint_flags.h"
#include "export_flags.h"
#include "model_flags.h"
#include "optimizer_flags.h"
#include "options.h"
#include "train/setup/options.h"
#include "train_plan.h"

namespace chimera::apps {

/// What a command line of `chimera train` says.
struct TrainCommandLine {
  TrainOptions options;
  CLI::Option* model_name = nullptr;
  CLI::Option* schedule = nullptr;
  ShapeFlags shape;
  ModelFlags model;
  OptimizerFlags optimizer;
  CheckpointFlags checkpoints;
  ExportFlags exports;
  TrainPlanFlags plan;
  std::string config;     // a TOML file of flags
  std::string interface;  // through which ranks on several hosts talk; empty: that of the way to rank 0
  bool dry_run = false;
  Format format = Format::Text;  // of a dry run

  /// Adds all flags, under their headings. Of a flag that is repeated the last counts.
  void add_to(CLI::App& command);
};

}  // namespace chimera::apps
