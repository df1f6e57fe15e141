#pragma once
// --plan auto: what `chimera train` runs is planned first.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "options.h"
#include "train/options.h"

namespace chimera::apps {

/// --plan, --machine, --workers, --mini-batch; with them --memory.
struct TrainPlanFlags {
  std::string plan = "none";
  std::string machine;
  std::int64_t workers = 0;
  std::int64_t mini_batch = 0;
  CLI::Option* plan_option = nullptr;
  std::vector<CLI::Option*> others;  // that mean nothing without --plan

  void add_to(CLI::App& app);
  [[nodiscard]] bool is_auto() const { return plan == "auto"; }
  /// Throws ConfigError where flags for planning stand without --plan.
  void require_sense() const;
  /// The fastest plan for what `options` ask for, of their schedule alone where `schedule_given`, as flags; `shape`
  /// and other flags that it decides must not be given. Throws ConfigError as make_plan() does.
  [[nodiscard]] std::vector<std::string> planned_words(const TrainOptions& options, bool schedule_given) const;
};

}  // namespace chimera::apps
