#pragma once

// The flags of `chimera train`. Values come, highest precedence first, from the command line, the file of --config, the
// plan of --plan auto and the defaults of TrainOptions. add_to() binds every flag to a field below. train.cc then
// merges the file and the plan into the same fields, and calls check_flags(), which rejects contradictions. The
// launcher passes the final values to the rank processes as a command line.

#include <CLI/CLI.hpp>
#include "bench/contest.h"
#include "flags/files.h"
#include "flags/outputs.h"
#include "plan/plan.h"
#include "plan/train_flags.h"
#include "train/setup/options.h"

namespace chimera {

namespace apps {

/// Values of --plan: the schedule and its parameters are the flags' (None), or those that the planner chooses (Auto).
enum class PlanChoice : std::uint8_t { None, Auto };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::PlanChoice> = in_order<apps::PlanChoice>("none", "auto");

namespace apps {

/// The flags and their values.
struct TrainCommandLine {
  TrainOptions options;
  ShapeRequest shape{.shape = ScheduleOptions().shape};
  PlanChoice plan = PlanChoice::None;
  ProblemRequest planner;  // for --plan auto: machine, workers and mini-batch; planned_flags() sets the rest
  std::string config;      // path of a TOML file of flags
  std::string interface;   // network interface between hosts; empty: the interface of the route to rank 0
  bool dry_run = false;
  bool lists_combinations = false;    // hidden --list-combinations, from which docs/combinations.md is made
  Format format = Format::Text;       // output format of a dry run
  const CLI::App* command = nullptr;  // argument of add_to()

  /// Adds all flags. If the user repeats a flag, the last value counts, except for --data and --validation. This object
  /// must outlive the parsing.
  void add_to(CLI::App& app);
  /// Returns whether `flag`, such as `--steps`, is given.
  [[nodiscard]] bool has(const char* flag) const { return command->count(flag) > 0; }
  /// Throws ConfigError if flags contradict each other or lack the flag that gives them an effect.
  void check_flags() const;
  /// For --plan auto: finds the plan that make_plan() (plan/plan.h) predicts to be fastest among those that
  /// `restrictions` allow. If these do not limit T (ranks that share each layer), T is one of usual_tensor_parallel().
  /// Prints the plan to standard error, and returns it as flags of `chimera train`. Throws ConfigError if the problem
  /// is invalid, or if no plan fits in memory.
  [[nodiscard]] TrainFlags planned_flags(PlanOptions restrictions) const;
};

// `chimera bench` compares the speed of several runs of `chimera train`; each is a Contender (bench/contest.h). It
// checks the flags of all runs before the first run starts. train.cc has these functions.

/// Returns the options that `chimera train` reads from `words`: flags and their values, without `chimera train`. Reads
/// the file of --config, if given. Throws ConfigError if the command would reject the flags.
[[nodiscard]] TrainOptions train_options(const std::vector<std::string>& words);

/// Returns a Contender called `name` that runs `chimera train` with the flags `words`. Throws ConfigError if training
/// would reject the flags or the files that they name.
[[nodiscard]] Contender training_contender(const std::string& name, const std::vector<std::string>& words);

}  // namespace apps

}  // namespace chimera
