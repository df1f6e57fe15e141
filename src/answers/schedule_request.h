#pragma once

// The parts of a request that say which schedules it is about: ScheduleRequest and LostRequest. A LostRequest names
// lost and slow workers, whose ops, or a part of them, move to other workers that hold the same stages
// (search/follow.h).

#include "answers/cost_request.h"
#include "answers/shape_request.h"
#include "schedule/schedule.h"
#include "search/follow.h"

namespace chimera {

/// A schedule: the `text` of a file if there is one, else a `file`, else a `name` and a `shape`.
struct ScheduleRequest {
  std::string name;                      // the path of a file, too, if `load` is set (names_schedule_file())
  std::string file;                      // path of a file with any name
  std::optional<std::string> text = {};  // JSON or CSV
  ShapeRequest shape;
  std::vector<std::string> with = {};  // names or files of schedules to draw next to this one
  /// Reads a schedule file. Null if requests cannot name files, as in the playground.
  std::function<Schedule(const std::string& path)> load = nullptr;

  /// Visits name, text and shape.
  void visit(Door& door);
  /// Visits `with`.
  void visit_with(Door& door);
  /// Returns the schedule. Does not validate a text. `make` generates a named schedule. Throws ConfigError if the name,
  /// shape or text is invalid, or as require_few() does.
  [[nodiscard]] Schedule make(const MakeSchedule& make = generate_or_suggest) const;
  /// Returns make(), after validation: throws ScheduleError with the first violation if check() rejects a text (a file
  /// is left to `load`). Applies `pairs` to the schedule of a file or text; `make` applies them to a named one, as
  /// fastest() does.
  [[nodiscard]] Schedule make_valid(const MakeSchedule& make = generate_or_suggest,
                                    const PairRequest& pairs = {}) const;
  /// Returns whether the schedule has a name rather than a file or text.
  [[nodiscard]] bool is_named() const { return !text && path().empty(); }
  /// Returns the path of the file that `load` reads; empty if there is none.
  [[nodiscard]] std::string path() const;
  /// Returns the schedules of `with`. A named one gets as many stages and micro-batches as `first`, and the given
  /// parameters that apply to it.
  [[nodiscard]] std::vector<Schedule> others(const Schedule& first, const MakeSchedule& make) const;
  /// Throws ConfigError for more ops than the playground can hold, unless `load` is set.
  void require_few(double ops) const;
};

/// Returns whether `name` is a schedule file and not the name of a generator: it ends in .json or .csv, contains a `/`,
/// or is `-` (standard input).
[[nodiscard]] bool names_schedule_file(const std::string& name);

/// Returns a function that generates a schedule with the parameters that make it fastest. The best values of some
/// parameters of a generator depend on the costs (VariedParameters::ByCosts). For each such parameter that is not
/// given, the function tries all values, applies `pairs` to each schedule, and returns the schedule with the least
/// `makespan`. If there is only one candidate, it does not call `makespan`. `shape` and `pairs` must outlive the
/// function.
[[nodiscard]] MakeSchedule fastest(const ShapeRequest& shape, const PairRequest& pairs,
                                   const std::function<double(const Schedule&)>& makespan);

/// A schedule whose ops were moved away from lost and slow workers. If no worker is lost or slow, the last three fields
/// are empty.
struct FollowedSchedule {
  Schedule schedule;
  CostModel costs;           // with the factors of slow workers
  std::string summary = {};  // for text output: how much longer a step takes
  // Makespan of the unchanged schedule with the slow workers; empty if a worker is lost
  std::optional<double> kept_makespan = std::nullopt;
  std::optional<double> bound = std::nullopt;  // lower bound of the makespan
};

/// Lost and slow workers.
struct LostRequest {
  std::vector<std::int64_t> without = {};  // numbers of the lost workers, counted through all data-parallel groups
  std::vector<std::pair<std::int64_t, double>> slow = {};  // workers and factors of their ops' times; infinity: lost
  std::int64_t extra_copies = 0;              // how many stages may get one more worker, to balance the work
  std::int64_t effort = FollowTask().effort;  // ops to time while the order is improved

  void visit(Door& door);
  [[nodiscard]] bool is_given() const { return !without.empty() || !slow.empty(); }
  /// Returns `healthy`, the schedule of one data-parallel group, unchanged if no worker is lost or slow. Otherwise
  /// returns one schedule for all `groups` data-parallel groups. `costs_of` returns the costs of a schedule without the
  /// factors of `slow`. Throws ConfigError, which names the field, if there is no such schedule.
  [[nodiscard]] FollowedSchedule apply_to(const Schedule& healthy, std::int64_t groups,
                                          const std::function<CostModel(const Schedule&)>& costs_of) const;
};

}  // namespace chimera
