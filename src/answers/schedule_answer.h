#pragma once

// `chimera schedule`: a schedule as a file or as a figure of the Chimera paper, in which all ops have equal lengths.

#include "answers/cost_request.h"
#include "answers/schedule_request.h"
#include "render/panel.h"
#include "render/text.h"

namespace chimera {

/// The request of `chimera schedule`.
struct DrawRequest {
  ScheduleRequest schedule;
  PairRequest pairs;
  LostRequest lost;
  std::int64_t data_parallel = 1;  // number of data-parallel groups; above 1 only with lost or slow workers

  void visit(Door& door);
};

/// Schedules without times.
struct Drawing {
  std::vector<Schedule> schedules;  // the schedule first, then those of ScheduleRequest::with
  std::string lost_summary;  // how much longer a step takes because of lost and slow workers; empty if there are none
};

/// Makes the schedules. Throws ConfigError or ScheduleError for an invalid request. Parameters that are not given, and
/// whose best values depend only on costs, get the values with the smallest makespan at the default costs of `chimera
/// simulate`.
[[nodiscard]] Drawing answer(const DrawRequest& request);

/// Returns the figures of all schedules, in which all ops have equal lengths. If some of several schedules have
/// split backwards, a whole backward is twice as long.
[[nodiscard]] std::vector<Panel> figures(const Drawing& drawing);
/// Returns the figures as text.
[[nodiscard]] std::string drawing_text(const Drawing& drawing, const TextStyle& style);
/// Returns CSV of torch.distributed.pipelining, with sends and receives if `communication`. Throws ConfigError if
/// `communication` is set and the schedule is asynchronous.
[[nodiscard]] std::string schedule_csv(const Schedule& schedule, bool communication);

}  // namespace chimera
