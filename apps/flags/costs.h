#pragma once

// Flags for the assumptions of a simulation: times of ops or a file with all costs (CostFlags), pairs of ops that
// overlap (PairFlags), and limits that a schedule must meet (LimitFlags). `check`, `schedule`, `search`, `simulate` and
// `sweep` use some of them.
//
// A command calls add_to() before it parses the command line. Afterwards it applies the flags to each schedule:
//
//   schedule = pairs.apply_to(schedule)                    marks the ops that may overlap
//   model    = pairs.with_time(costs.costs_of(schedule))   CostModel for simulate()
//   check_limits(schedule, limits.limits())                violations if the schedule exceeds a limit
//
// The ops of a schedule are forwards (F) and backwards (B). A schedule may split a backward into an input gradient (I)
// and a weight gradient (W), and each op into *slices*, parts of the micro-batch's token sequence.

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "check/check_limits.h"
#include "core/choices.h"
#include "flags/shape.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"
#include "simulate/simulate.h"

namespace chimera {
namespace apps {

/// Ops that may overlap (--pairs)
enum class PairChoice : std::uint8_t {
  Own,        ///< the pairs that the schedule has from its generator or file
  Neighbors,  ///< each forward and the backward directly after it (pair_neighbors)
  None,       ///< no pairs
};

}  // namespace apps

template <>
inline constexpr auto kNames<apps::PairChoice> = std::to_array<Named<apps::PairChoice>>(
    {{apps::PairChoice::Own, "own"}, {apps::PairChoice::Neighbors, "neighbors"}, {apps::PairChoice::None, "none"}});

namespace apps {

/// Names of the time flags of CostFlags, with underscores instead of hyphens. `sweep` uses them as names of columns.
inline constexpr std::array kTimeColumns = {"forward",         "backward", "input_gradient",
                                            "weight_gradient", "latency",  "attention"};

struct CostFlags;

/// The flag of one time, such as --forward. `chimera sweep` also accepts a list of times (FlagValues::Lists).
struct TimeFlag {
  std::string column;       // one of kTimeColumns
  double CostFlags::*time;  // the field that the flag sets, to the first value
  CLI::Option* option = nullptr;
  std::vector<double> values = {};  // all values of the flag; empty if it is not given
};

/// Costs of all ops and messages, in any unit of time. The times of ops are for all stages that a replica of the model
/// has on one worker, together. If a worker has two stages, a forward of one of them takes `forward` / 2.
struct CostFlags {
  double forward = 1;
  double backward = 2;
  double input_gradient = 0;          // I; half of `backward` if neither this nor --weight-gradient is given
  double weight_gradient = 0;         // W; half of `backward` if neither this nor --input-gradient is given
  double latency = 0;                 // delay of each message
  double attention = 0;               // attention's part of an op's time, 0 to 1; later slices attend to more tokens
  std::vector<double> slice_lengths;  // tokens of each slice; one number: equal lengths; empty: lengths of equal times
  std::string file;                   // cost file; empty: use the times above
  std::string links;                  // file with message costs per pair of workers; empty: use latency or `file`
  AllReducePlacement sync = AllReducePlacement::EagerOpt;  // when a worker starts gradient all-reduces
  bool blocking_sends = false;                             // whether a sender waits until its message has arrived
  std::int64_t data_parallel = 1;                          // number of data-parallel groups
  bool shared_cores = false;    // whether all groups run on shared CPU cores (`simulate --cores`)
  std::vector<TimeFlag> times;  // the flags of the times above; none may be given together with --costs
  CLI::Option* sync_option = nullptr;
  CLI::Option* slice_lengths_option = nullptr;

  /// Adds the flags to a command. `counts` says whether the times also accept lists. The object must stay where it is,
  /// because the flags write into it. Call the functions below after the command line is parsed.
  void add_to(CLI::App& app, FlagValues counts = FlagValues::Single);
  /// Returns whether the command line has the flag of this time.
  [[nodiscard]] bool is_given(double CostFlags::*time) const;
  /// Returns the flags with more than one value.
  [[nodiscard]] std::vector<const TimeFlag*> flags_with_lists() const;
  /// Returns a copy with single times for each combination of the lists. The first flag varies slowest. Throws
  /// ConfigError for more than kMaxListed combinations.
  [[nodiscard]] std::vector<CostFlags> combinations() const;
  /// Returns the costs of the schedule's ops. Throws ConfigError if flags contradict each other, or if a file cannot be
  /// read or does not fit the schedule.
  [[nodiscard]] CostModel costs_of(const Schedule& schedule) const;
  /// If no schedule of the command has slices (`any` is false), prints a warning on standard error for each given flag
  /// that only affects slices.
  void warn_without_slices(bool any) const;

 private:
  [[nodiscard]] CostModel given_times(const Schedule& schedule) const;
  [[nodiscard]] CostModel read_file(const Schedule& schedule) const;
  void set_bounds(const Schedule& schedule, CostModel& costs) const;
  void add_links(CostModel& costs) const;
};

/// Parses --slice-lengths: empty for `balanced`, one 1 for `equal`, else the tokens of each slice. Throws ConfigError
/// for other texts and for lengths of 0.
[[nodiscard]] std::vector<double> parse_slice_lengths(const std::string& text);

/// The flags --pairs and --pair-time. A pair is a forward and a backward that may overlap on their worker.
struct PairFlags {
  PairChoice choice = PairChoice::Own;
  double time = 1;                     // time of a pair, relative to the sum of the times of its two ops
  CLI::Option* time_option = nullptr;  // null: the command has no --pair-time

  /// Adds --pairs.
  void add_to(CLI::App& app);
  /// Adds --pair-time.
  void add_time_to(CLI::App& app);
  /// Returns the schedule with the pairs of `choice`. Throws ConfigError for Neighbors if the schedule has slices.
  [[nodiscard]] Schedule apply_to(Schedule schedule) const;
  /// Returns `costs` with the time of --pair-time, if given. Throws ConfigError if `costs` has one already.
  [[nodiscard]] CostModel with_time(CostModel costs) const;
  /// If no schedule of the command has pairs (`any` is false), prints a warning that --pair-time has no effect.
  void warn_without_pairs(bool any) const;
};

/// The flags --max-in-flight, --memory, --activation-bytes and --weight-bytes
struct LimitFlags {
  /// `consequence` ends the help text of both limits: what a command does with schedules beyond the limit.
  void add_to(CLI::App& app, const std::string& consequence = "");
  /// Returns the given limits. Throws ConfigError if only some of --memory, --activation-bytes and --weight-bytes are
  /// given.
  [[nodiscard]] Limits limits() const;
  /// Returns the bytes of --memory if it is given alone. `search` then takes the bytes of activations and weights from
  /// the file of --costs.
  [[nodiscard]] std::optional<double> memory_without_sizes() const;
  /// Returns --max-in-flight, if given: the maximum activations of a worker. The unit is the activations of one
  /// micro-batch in all stages that a replica has on the worker.
  [[nodiscard]] std::optional<double> in_flight() const;
  /// Returns the limits for messages, such as `--max-in-flight 4, --memory 1e9`.
  [[nodiscard]] std::string text() const;

 private:
  double in_flight_ = 0;
  MemoryLimit memory_;
  const CLI::App* app_ = nullptr;
};

/// Returns a function that generates a schedule with the parameters that make it fastest. The best values of some
/// parameters of a generator depend on the costs (VariedParameters::ByCosts). For each such parameter that no flag
/// sets, the function tries all values, applies `pairs` to each schedule, and returns the schedule with the least
/// `makespan`. If there is only one candidate, it does not call `makespan`. `shape` and `pairs` must outlive the
/// function.
[[nodiscard]] MakeSchedule fastest(const ShapeFlags& shape, const PairFlags& pairs,
                                   const std::function<double(const Schedule&)>& makespan);

}  // namespace apps
}  // namespace chimera
