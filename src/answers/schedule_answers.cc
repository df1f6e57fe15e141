#include "answers/schedule_answers.h"

#include <fmt/format.h>
#include <algorithm>
#include <vector>

#include "answers/check_answer.h"
#include "answers/requests.h"
#include "core/choices.h"
#include "core/error.h"
#include "core/json.h"
#include "passes/unroll.h"
#include "render/html.h"
#include "render/page_data.h"
#include "render/perfetto.h"
#include "render/slots.h"
#include "render/svg.h"
#include "render/text.h"
#include "render/timeline_json.h"
#include "schedule/dependencies.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"
#include "search/limits.h"
#include "simulate/costs.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "simulate/summary.h"

namespace chimera::playground {
namespace {

Limits requested_limits(const JsonValue& request) {
  Limits limits;
  if (request.has("max_in_flight")) limits.in_flight = request.number("max_in_flight");
  return limits;
}

bool can_be_drawn(const CheckResult& report) {
  return std::none_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.violation.kind == ViolationKind::BadPlacement || finding.violation.kind == ViolationKind::OutOfRange;
  });
}

Json counter_examples(const CheckResult& report) {
  Json texts = Json::array();
  for (const Finding& finding : report.findings) {
    if (finding.violation.severity == Severity::Violation) texts.push_back(finding.excerpt);
  }
  return texts;
}

Json rows_json(const Schedule& schedule) {
  Json rows = Json::array();
  for (const std::vector<Op>& ops : schedule.workers) {
    Json row = Json::array();
    for (const Op& op : ops) row.push_back(to_text(op, schedule.slices));
    rows.push_back(std::move(row));
  }
  return rows;
}

struct PartialRun {
  Panel panel;                       // all ops; those that cannot run are placed in order after the end of the others
  std::vector<std::size_t> visited;  // [worker]: number of ops that can run
};

std::vector<std::size_t> time_running(const OpTable& table, const CostTable& costs, Timeline& timeline) {
  const auto timed = [&](OpIndex op) -> TimedOp& {
    const std::size_t worker = table.worker(op);
    return timeline.workers[worker].ops[op - table.first(worker)];
  };
  std::vector<double> free(timeline.workers.size(), 0);
  return visit_in_dependency_order(table, [&](OpIndex op) {
    // An op starts when its worker is free and its inputs are there; messages take no time.
    double start = free[table.worker(op)];
    for (const OpIndex input : table.inputs(table.op(op))) {
      if (input != kNoOp) start = std::max(start, timed(input).end);
    }
    timed(op) = {start, start + costs.duration(table.op(op))};
    free[table.worker(op)] = timed(op).end;
  });
}

/// Simulates the ops that can run, without message times. Skips ops whose inputs never arrive, and all later ops of the
/// same worker. Requires ids in range and a valid placement.
PartialRun run_as_far_as_possible(const Schedule& schedule, const CostModel& costs) {
  const OpTable table(schedule);
  const CostTable durations(schedule, costs);
  Timeline timeline = empty_timeline(schedule);
  const std::vector<std::size_t> visited = time_running(table, durations, timeline);
  double reached = 0;
  for (const WorkerTimeline& worker : timeline.workers) {
    for (const TimedOp& op : worker.ops) reached = std::max(reached, op.end);
  }
  for (std::size_t w = 0; w < visited.size(); ++w) {
    // The page draws ops that cannot run after all others, in the order of their worker, and marks them.
    double time = reached;
    for (std::size_t i = visited[w]; i < timeline.workers[w].ops.size(); ++i) {
      const double end = time + durations.duration(schedule.workers[w][i]);
      timeline.workers[w].ops[i] = {time, end};
      time = end;
    }
    timeline.makespan = std::max(timeline.makespan, std::max(time, reached));
  }
  timeline.ops_end = timeline.makespan;
  Panel panel{
      .title = schedule.name, .schedule = schedule, .timeline = std::move(timeline), .explanation = {}, .totals = {}};
  return {std::move(panel), visited};
}

/// Schedule of several steps, or of a single step.
struct TimedSteps {
  Schedule schedule;
  CostModel costs;
  Timeline timeline;
};

TimedSteps time_steps(const JsonValue& request) {
  Schedule schedule = valid_schedule(request.field("schedule"));
  const std::int64_t steps = count_or(request, "steps", 1, 1);
  if (steps > 1) {
    // Checked before the steps are made.
    if (steps * num_ops(schedule) > kMaxPlaygroundOps)
      throw ConfigError(
          fmt::format("{} steps are more ops than the {} that the playground holds", steps, kMaxPlaygroundOps));
    schedule = unroll(schedule, steps);
  }
  CostModel costs = requested_costs(request, schedule);
  Timeline timeline = simulate(schedule, costs, {.steps = steps});
  // Also false for NaN.
  if (!(timeline.makespan < 1e30)) throw ConfigError("the makespan is too large for a picture; use a larger unit");
  return {std::move(schedule), std::move(costs), std::move(timeline)};
}

/// Sliders set no sizes of messages and gradients; volumes are then numbers of tensors.
Panel panel_of(TimedSteps run, const JsonValue& request) {
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
    // Slices are fractions of micro-batches.
    const bool is_whole = panel.schedule.slices == 1;
    workers.push_back(
        {{"busy", worker.busy},
         {"idle", worker.idle},
         {"in_flight", is_whole ? Json(worker.peak_in_flight) : Json(micro_batches_in_flight(panel.schedule, worker))},
         {"weight_versions", worker.peak_weight_versions},
         {"peak", peak_memory(panel.explanation, w)}});
  }
  return workers;
}

Json totals_json(const Panel& panel) {
  const Timeline& timeline = panel.timeline;
  const auto idle = idle_by_cause(panel.explanation.bubbles);
  Json causes = Json::object();
  for (int c = 0; c < kIdleCauses; ++c) causes[to_text(static_cast<IdleCause>(c))] = idle[static_cast<std::size_t>(c)];
  const Json workers = workers_json(panel);
  double peak = 0;
  for (const Json& worker : workers) peak = std::max(peak, worker["peak"].get<double>());
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
          {"workers", workers}};
}

std::string file_of(const std::string& format, const JsonValue& request) {
  if (format == "json" || format == "csv" || format == "csv-communication") {
    const Schedule schedule = valid_schedule(request.field("schedule"));
    if (format != "csv-communication") return format == "json" ? to_json(schedule) : to_csv(schedule);
    if (schedule.updates) throw ConfigError("PyTorch's CSV has no updates between ops; export it without messages");
    return csv_with_messages(schedule);
  }
  if (format == "figure" || format == "figure-text") {
    const Panel figure = paper_figure(valid_schedule(request.field("schedule")));
    return format == "figure" ? to_svg(figure) : to_text(figure.schedule, figure.timeline);
  }
  const Panel panel = panel_of(time_steps(request), request);
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

Json answer_check(const JsonValue& request) {
  CheckResult report = check_everything(requested_schedule(request.field("schedule")), requested_limits(request),
                                        bool_or(request, "strict_order", false));
  Json json = {{"report", read_json(check_json(report))},
               {"excerpts", counter_examples(report)},
               {"stages", report.schedule.stages},
               {"micro_batches", report.schedule.micro_batches},
               {"rows", rows_json(report.schedule)}};
  if (report.is_valid() || !can_be_drawn(report)) return json;
  const PartialRun run = run_as_far_as_possible(report.schedule, requested_costs(request, report.schedule));
  json["panel"] = page_panel(run.panel);
  json["visited"] = run.visited;
  return json;
}

Json answer_simulate(const JsonValue& request) {
  const std::string view = text_or(request, "view", "panel");
  if (view == "figure") {
    const Panel panel = paper_figure(valid_schedule(request.field("schedule")));
    return {{"totals", totals_json(panel)}, {"panel", page_panel(panel)}};
  }
  const Panel panel = panel_of(time_steps(request), request);
  Json json = {{"totals", totals_json(panel)}};
  if (view == "panel") json["panel"] = page_panel(panel);
  return json;
}

Json answer_read(const JsonValue& request) {
  return {{"text", to_json(requested_schedule(request.field("schedule")))}};
}

Json answer_export(const JsonValue& request) { return {{"text", file_of(request.text("format"), request)}}; }

}  // namespace chimera::playground
