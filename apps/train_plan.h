#pragma once
// --plan auto: what `chimera train` runs is planned first.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

#include "options.h"
#include "train/setup/options.h"

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
