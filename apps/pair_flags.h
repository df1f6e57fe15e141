#pragma once
// Flags for pairs of ops: which ones a schedule has, and what they take together.

#include <CLI/CLI.hpp>

#include "core/choices.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {
namespace apps {

/// --pairs: which ops of a schedule are pairs.
enum class PairChoice : std::uint8_t {
  Own,         ///< those that its generator or file says
  Neighbours,  ///< every forward and the backward right behind it (pair_neighbours)
  None,
};

}  // namespace apps

template <>
inline constexpr auto kNames<apps::PairChoice> = std::to_array<Named<apps::PairChoice>>(
    {{apps::PairChoice::Own, "own"}, {apps::PairChoice::Neighbours, "neighbours"}, {apps::PairChoice::None, "none"}});

namespace apps {

/// --pairs and, where times are asked for, --pair-time.
struct PairFlags {
  PairChoice choice = PairChoice::Own;
  double time = 1;
  CLI::Option* time_option = nullptr;  // null: the command takes no times

  void add_to(CLI::App& app);
  void add_time_to(CLI::App& app);
  /// The schedule with the pairs that the flags say.
  [[nodiscard]] Schedule paired(Schedule schedule) const;
  /// The costs with the pairs' time. Throws ConfigError where they say one already.
  [[nodiscard]] CostModel with_time(CostModel costs) const;
};

}  // namespace apps
}  // namespace chimera
