#pragma once

// The flags of `chimera train`. Values come, highest precedence first, from the command line, the file of --config, the
// plan of --plan auto and the defaults of TrainOptions. Ranks receive the final values as words of a command line.

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "engine/optimizer_options.h"
#include "flags/model.h"
#include "flags/outputs.h"
#include "flags/shape.h"
#include "plan/plan.h"
#include "plan/train_flags.h"
#include "train/setup/options.h"

namespace chimera::apps {

struct CheckpointFlags {
  std::vector<CLI::Option*> details;  // flags that require --checkpoint
  CLI::Option* keep = nullptr;
  CLI::Option* keep_every = nullptr;
  CLI::Option* other_data = nullptr;
  CLI::Option* spike_skip = nullptr;
  CLI::Option* recover = nullptr;
  CLI::Option* max_restarts = nullptr;
  CLI::Option* recoveries = nullptr;

  void add_to(CLI::App& app, TrainOptions& options);
  /// Returns whether --recover restart is given without --max-restarts.
  [[nodiscard]] bool restarts_as_usual(const TrainOptions& options) const;
  /// Throws ConfigError if a flag is out of range, contradicts another flag, or lacks the flag that it requires.
  void check_flags(const TrainOptions& options) const;
};

struct OptimizerFlags {
  double minimum = 0;  // --min-learning-rate
  CLI::Option* minimum_option = nullptr;
  std::int64_t cooldown = 0;  // --cooldown
  CLI::Option* cooldown_option = nullptr;
  CLI::Option* cooldown_shape_option = nullptr;
  std::vector<CLI::Option*> of_adam = {};  // flags that plain SGD rejects

  /// `optimizer` and `rate` hold the defaults and receive the values.
  void add_to(CLI::App& app, OptimizerOptions& optimizer, LearningRate& rate);
  /// Copies the given --min-learning-rate and --cooldown to `rate`. Throws ConfigError for flags that do not apply to
  /// the optimizer or the learning-rate shape.
  void complete(const OptimizerOptions& optimizer, LearningRate& rate) const;
};

struct ExportFlags {
  std::vector<CLI::Option*> details;  // flags that require --export

  void add_to(CLI::App& app, TrainOptions& options);
  /// Throws ConfigError if flags that require --export are given without it.
  void check_flags(const TrainOptions& options) const;
};

}  // namespace chimera::apps

namespace chimera {

namespace apps {

enum class PlanChoice : std::uint8_t { None, Auto };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::PlanChoice> =
    std::to_array<Named<apps::PlanChoice>>({{apps::PlanChoice::None, "none"}, {apps::PlanChoice::Auto, "auto"}});

namespace apps {

struct TrainPlanFlags {
  PlanChoice plan = PlanChoice::None;
  std::string machine;
  std::int64_t workers = 0;
  std::int64_t mini_batch = 0;
  CLI::Option* plan_option = nullptr;
  std::vector<CLI::Option*> others;  // the planner's input; all but --machine require --plan

  void add_to(CLI::App& app);
  [[nodiscard]] bool is_auto() const { return plan == PlanChoice::Auto; }
  /// Throws ConfigError if a flag that requires --plan is given without it.
  void check_flags() const;
  /// Returns the fastest plan for `options` within `restrictions` as flags, and prints it to standard error. Throws
  /// ConfigError as PlanFlags::problem() and make_plan() do.
  [[nodiscard]] std::vector<TrainFlag> planned_flags(const TrainOptions& options,
                                                     const PlanOptions& restrictions) const;
};

}  // namespace apps

}  // namespace chimera

namespace chimera::apps {

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
  std::string config;     // path of a TOML file of flags
  std::string interface;  // network interface between hosts; empty: the interface of the route to rank 0
  bool dry_run = false;
  Format format = Format::Text;  // output format of a dry run

  /// A repeated flag replaces earlier ones, except --data and --validation.
  void add_to(CLI::App& command);
};

}  // namespace chimera::apps
