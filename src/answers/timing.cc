// The answers that run a schedule: its panel and its files.

#include <fmt/format.h>

#include <cmath>

#include "answers/answers.h"
#include "answers/requests.h"
#include "core/error.h"
#include "core/nearest.h"
#include "passes/lower.h"
#include "passes/unroll.h"
#include "render/html.h"
#include "render/page_data.h"
#include "render/perfetto.h"
#include "render/slots.h"
#include "render/svg.h"
#include "render/text.h"
#include "render/timeline_json.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"

namespace chimera::playground {
namespace {

/// A schedule of one step or several, with its costs.
struct Timed {
  Schedule schedule;
  CostModel costs;
  Timeline timeline;
};

Timed timed(const JsonValue& request) {
  Schedule schedule = valid_schedule(request.field("schedule"));
  const std::int64_t steps = count_or(request, "steps", 1, 1);
  if (steps > 1) {
    if (steps * num_ops(schedule) > kMostPlayedOps)
      throw ConfigError(
          fmt::format("{} steps are more ops than the {} that the playground holds", steps, kMostPlayedOps));
    schedule = unroll(schedule, steps);
  }
  CostModel costs = requested_costs(request, schedule);
  Timeline timeline = simulate_steps(schedule, steps, costs);
  if (!(timeline.makespan < 1e30)) throw ConfigError("the makespan is too large for a picture; use a larger unit");
  return {std::move(schedule), std::move(costs), std::move(timeline)};
}

/// Its panel. Sliders say what workers hold, not what messages and gradients take: their volumes then are numbers of
/// tensors.
Panel panel_of(Timed run, const JsonValue& request) {
  Panel panel = chimera::panel_of(std::move(run.schedule), std::move(run.timeline), run.costs);
  if (request.has("costs") && request.field("costs").has("file")) return panel;
  panel.totals.message_bytes.reset();
  panel.totals.all_reduce_bytes.reset();
  return panel;
}

Json workers_json(const Panel& panel) {
  Json workers = Json::array();
  for (std::size_t w = 0; w < panel.timeline.workers.size(); ++w) {
    const WorkerTimeline& worker = panel.timeline.workers[w];
    double peak = 0;
    for (const MemoryPoint& point : panel.explanation.memory[w]) peak = std::max(peak, point.amount);
    workers.push_back({{"busy", worker.busy},
                       {"idle", worker.idle},
                       {"in_flight", worker.peak_in_flight},
                       {"weight_versions", worker.peak_weight_versions},
                       {"peak", peak}});
  }
  return workers;
}

Json totals_json(const Panel& panel) {
  const Timeline& timeline = panel.timeline;
  const auto idle = idle_by_cause(panel.explanation.bubbles);
  Json causes = Json::object();
  for (int c = 0; c < kIdleCauses; ++c) causes[to_text(static_cast<IdleCause>(c))] = idle[static_cast<std::size_t>(c)];
  double peak = 0;
  for (const Json& worker : workers_json(panel)) peak = std::max(peak, worker["peak"].get<double>());
  return {{"makespan", timeline.makespan},
          {"ops_end", timeline.ops_end},
          {"lower_bound", timeline.lower_bound},
          {"bubble_ratio", timeline.bubble_ratio},
          {"period", timeline.period},
          {"peak", peak},
          {"peak_units", panel.totals.peak_units},
          {"messages", panel.totals.messages},
          {"ops", num_ops(panel.schedule)},
          {"idle", causes},
          {"workers", workers_json(panel)}};
}

std::string csv_of(const Schedule& schedule, bool communication) {
  if (!communication) return to_csv(schedule);
  if (schedule.updates) throw ConfigError("PyTorch's CSV has no updates between ops; export it without messages");
  return to_csv(
      schedule,
      lower(schedule, {.discipline = ChannelDiscipline::SerialPair, .receives_ahead = 0, .pairs = Pairs::Together}));
}

std::string file_of(const std::string& format, const JsonValue& request) {
  if (format == "json" || format == "csv" || format == "csv-communication") {
    const Schedule schedule = valid_schedule(request.field("schedule"));
    return format == "json" ? to_json(schedule) : csv_of(schedule, format == "csv-communication");
  }
  if (format == "figure" || format == "figure-text") {
    const Panel figure = figure_of(valid_schedule(request.field("schedule")));
    return format == "figure" ? to_svg(figure) : to_text(figure.schedule, figure.timeline);
  }
  const Panel panel = panel_of(timed(request), request);
  if (format == "svg") return to_svg(panel);
  if (format == "html") return to_html({panel});
  if (format == "text") return to_text(panel.schedule, panel.timeline);
  if (format == "timeline") return to_json(panel.schedule, panel.timeline, panel.explanation);
  if (format == "perfetto") return to_perfetto(panel.schedule, panel.timeline, panel.explanation);
  const std::vector<std::string> known = {"json", "csv",  "csv-communication", "figure",  "figure-text", "svg",
                                          "html", "text", "timeline",          "perfetto"};
  request.field("format").fail(unknown_name("format", format, known));
}

}  // namespace

Json simulated(const JsonValue& request) {
  const std::string view = text_or(request, "view", "panel");
  if (view == "figure") {
    const Panel panel = figure_of(valid_schedule(request.field("schedule")));
    return {{"totals", totals_json(panel)}, {"panel", page_panel(panel)}};
  }
  const Panel panel = panel_of(timed(request), request);
  Json json = {{"totals", totals_json(panel)}};
  if (view == "panel") json["panel"] = page_panel(panel);
  return json;
}

Json read_as_it_is(const JsonValue& request) {
  return {{"text", to_json(requested_schedule(request.field("schedule")))}};
}

Json exported(const JsonValue& request) { return {{"text", file_of(request.text("format"), request)}}; }

}  // namespace chimera::playground
