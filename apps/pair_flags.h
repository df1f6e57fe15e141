#pragma once

#include <CLI/CLI.hpp>

#include "core/choices.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"

namespace chimera {
namespace apps {

enum class PairChoice : std::uint8_t {
  Own,        ///< as in its generator or file
  Neighbors,  ///< each forward and the backward directly after it (pair_neighbors)
  None,
};

}  // namespace apps

template <>
inline constexpr auto kNames<apps::PairChoice> = std::to_array<Named<apps::PairChoice>>(
    {{apps::PairChoice::Own, "own"}, {apps::PairChoice::Neighbors, "neighbors"}, {apps::PairChoice::None, "none"}});

namespace apps {

struct PairFlags {
  PairChoice choice = PairChoice::Own;
  double time = 1;
  CLI::Option* time_option = nullptr;  // null: the command has no times

  void add_to(CLI::App& app);
  void add_time_to(CLI::App& app);
  [[nodiscard]] Schedule paired(Schedule schedule) const;
  /// Throws ConfigError if `costs` has a time of pairs.
  [[nodiscard]] CostModel with_time(CostModel costs) const;
  void report_without_pairs(bool any) const;
};

}  // namespace apps
}  // namespace chimera
