#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/optimizer_options.h"
#include "export_flags.h"
#include "model_flags.h"
#include "options.h"
#include "train/setup/options.h"

// --checkpoint and --resume with the flags beside them: what a run saves, and what it goes on from.

// How `chimera train` updates weights: --optimizer and what belongs to it, and the learning rate.

// --plan auto: what `chimera train` runs is planned first.

// The flags of `chimera train`.

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

namespace chimera {

namespace apps {

/// --plan: whether `chimera train` plans first.
enum class PlanChoice : std::uint8_t { None, Auto };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::PlanChoice> =
    std::to_array<Named<apps::PlanChoice>>({{apps::PlanChoice::None, "none"}, {apps::PlanChoice::Auto, "auto"}});

namespace apps {

/// --plan, --machine, --workers, --mini-batch; with them --memory.
struct TrainPlanFlags {
  PlanChoice plan = PlanChoice::None;
  std::string machine;
  std::int64_t workers = 0;
  std::int64_t mini_batch = 0;
  CLI::Option* plan_option = nullptr;
  std::vector<CLI::Option*> others;  // that mean nothing without --plan

  void add_to(CLI::App& app);
  [[nodiscard]] bool is_auto() const { return plan == PlanChoice::Auto; }
  /// Throws ConfigError where flags for planning stand without --plan; --machine is for others as well.
  void require_sense() const;
  /// The fastest plan for what `options` ask for, of their schedule alone where `schedule_given`, as flags; `shape`
  /// and other flags that it decides must not be given. Throws ConfigError as make_plan() does.
  [[nodiscard]] std::vector<std::string> planned_words(const TrainOptions& options, bool schedule_given) const;
};

}  // namespace apps

}  // namespace chimera

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
