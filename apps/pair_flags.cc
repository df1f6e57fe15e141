#include "pair_flags.h"

#include <utility>

#include "core/console.h"
#include "core/error.h"
#include "options.h"
#include "passes/pair_neighbors.h"

namespace chimera::apps {

void PairFlags::add_to(CLI::App& app) {
  add_choice(app, "--pairs", choice,
             "which pairs of ops may overlap: those of the schedule; each forward with the next backward of another "
             "micro-batch; or none (default own)")
      ->transform([](std::string word) { return word == "neighbours" ? "neighbors" : word; });  // earlier spelling
}

void PairFlags::add_time_to(CLI::App& app) {
  time_option =
      add_number(app, "--pair-time", time,
                 "time of an overlapped pair relative to the sum of its two ops; at least the longer op (default 1)");
}

Schedule PairFlags::paired(Schedule schedule) const {
  switch (choice) {
    case PairChoice::Own: return schedule;
    case PairChoice::Neighbors:
      if (schedule.slices > 1) {
        throw ConfigError("--pairs neighbors: " + schedule.name +
                          " has slices, which run one after the other; leave "
                          "out --pairs or --slices");
      }
      return pair_neighbors(std::move(schedule));
    case PairChoice::None: return without_pairs(std::move(schedule));
  }
  return schedule;
}

CostModel PairFlags::with_time(CostModel costs) const {
  if (time_option == nullptr || time_option->count() == 0) return costs;
  if (costs.pair) throw ConfigError("--pair-time: --costs gives it already; give one of the two");
  costs.pair = time;
  return costs;
}

void PairFlags::report_without_pairs(bool any) const {
  if (any || time_option == nullptr || time_option->count() == 0) return;
  messages().write("chimera: --pair-time has no effect: no schedule has pairs; --pairs neighbors makes them\n");
}

}  // namespace chimera::apps
