#pragma once

// `chimera schedule`: a schedule as a file or as a figure of the Chimera paper, in which all ops have equal lengths.

#include <cstdint>
#include <string>
#include <vector>

#include "answers/cost_request.h"
#include "answers/schedule_request.h"
#include "render/panel.h"
#include "render/text.h"

namespace chimera {

struct DrawRequest {
  ScheduleRequest schedule;
  PairRequest pairs;
  LostRequest lost;
  std::int64_t data_parallel = 1;  // number of groups around lost workers

  void visit(Door& door);
};

/// Schedules without times.
struct Drawing {
  std::vector<Schedule> schedules;  // the schedule first, then those of ScheduleRequest::with
  std::string lost_summary;         // how much longer a step takes after the loss of workers
};

/// Throws ConfigError or ScheduleError for an invalid request. A named schedule with two orders has the order that ends
/// first at the default costs of `chimera simulate`.
[[nodiscard]] Drawing answer(const DrawRequest& request);

/// Returns the figures of all schedules. If some, but not all, have split backwards, a whole backward takes two slots.
[[nodiscard]] std::vector<Panel> figures(const Drawing& drawing);
/// Returns the figures as text.
[[nodiscard]] std::string drawing_text(const Drawing& drawing, const TextStyle& style);
/// Returns CSV of torch.distributed.pipelining, with sends and receives if `communication`.
[[nodiscard]] std::string schedule_csv(const Schedule& schedule, bool communication);

}  // namespace chimera
