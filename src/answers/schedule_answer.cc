#include "answers/schedule_answer.h"

#include <algorithm>

#include "core/mapped.h"
#include "core/reject.h"
#include "passes/lower.h"
#include "render/panel.h"
#include "schedule/schedule_csv.h"
#include "simulate/simulate.h"

namespace chimera {

void DrawRequest::visit(Door& door) {
  door.object("schedule", [this](Door& fields) { schedule.visit(fields); });
  pairs.visit(door);
  lost.visit(door);
  door.field({"data_parallel", "with --without or --slow: number of groups (W; default 1)"}, data_parallel);
  door.group("Output");
  schedule.visit_with(door);
}

Drawing answer(const DrawRequest& request) {
  const ScheduleRequest& asked = request.schedule;
  // A figure has no costs, but a schedule with two orders must have one of them: the faster one at usual costs.
  const MakeSchedule make = fastest(asked.shape, request.pairs, [](const Schedule& schedule) {
    return simulate(schedule, CostRequest().costs_of(schedule)).makespan;
  });
  const Schedule healthy = asked.make_valid(make, request.pairs);
  if (request.data_parallel > 1 && !request.lost.is_given())
    reject("--data-parallel needs --without or --slow: all groups run the same schedule");
  Drawing drawing;
  FollowedSchedule followed = request.lost.apply_to(
      healthy, request.data_parallel, [](const Schedule& schedule) { return CostRequest().costs_of(schedule); });
  drawing.lost_summary = followed.summary;
  drawing.schedules = {std::move(followed.schedule)};
  std::ranges::copy(asked.others(healthy, make), std::back_inserter(drawing.schedules));
  return drawing;
}

std::vector<Panel> figures(const Drawing& drawing) {
  const auto& schedules = drawing.schedules;
  // A whole backward then takes two units, so that all pictures have the same work.
  const bool mixed = schedules.size() > 1 && std::ranges::any_of(schedules, has_split_backwards);
  return mapped(schedules, [&](const Schedule& schedule) { return paper_figure(schedule, mixed ? 2 : 1); });
}

std::string drawing_text(const Drawing& drawing, const TextStyle& style) {
  const std::vector<Panel> panels = figures(drawing);
  const auto picture = [&](const Panel& panel) { return to_text(panel.schedule, panel.timeline, style); };
  // A single picture needs no title.
  if (panels.size() == 1) return picture(panels.front()) + drawing.lost_summary;
  std::string text;
  for (const Panel& panel : panels) text += panel.title + "\n" + picture(panel) + "\n";
  return text + comparison_table(panels) + drawing.lost_summary;
}

std::string schedule_csv(const Schedule& schedule, bool communication) {
  // PyTorch adds the messages itself when it loads compute_only cells.
  if (!communication) return to_csv(schedule);
  if (schedule.updates) reject("schedule: PyTorch's CSV has no updates between ops; leave out --communication");
  // PyTorch matches both directions of a pair of workers in one order, and posts no receive ahead of its use.
  return to_csv(
      schedule,
      lower(schedule, {.discipline = ChannelDiscipline::SerialPair, .receives_ahead = 0, .pairs = Pairs::Together}));
}

}  // namespace chimera
