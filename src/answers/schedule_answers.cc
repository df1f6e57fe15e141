// These answers make the requests of the commands from JSON and return JSON. Two things only the page has: the data of
// a picture (page_panel()), and a picture of a schedule that cannot run, as far as it runs (run_as_far_as_possible()).

#include "answers/schedule_answers.h"

#include <algorithm>

#include "answers/check_answer.h"
#include "answers/door.h"
#include "answers/schedule_answer.h"
#include "answers/simulate_answer.h"
#include "answers/sweep_answer.h"
#include "core/choices.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "render/html.h"
#include "render/perfetto.h"
#include "render/svg.h"
#include "render/text.h"
#include "render/timeline_json.h"
#include "schedule/dependencies.h"
#include "schedule/schedule_json.h"
#include "simulate/cost_table.h"
#include "simulate/summary.h"

namespace chimera::playground {
namespace {

SimulateRequest requested(const JsonValue& json) {
  return read_request<SimulateRequest>(json, {"do", "view", "format"});
}

bool can_be_drawn(const CheckResult& report) {
  // With these two kinds, ids do not exist, and the picture indexes by them. Other violations can be shown.
  return std::none_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.violation.kind == ViolationKind::BadPlacement || finding.violation.kind == ViolationKind::OutOfRange;
  });
}

Json counter_examples(const CheckResult& report) {
  Json texts = Json::array();
  for (const Finding& finding : report.findings) {
    if (!finding.is_note) texts.push_back(finding.excerpt);
  }
  return texts;
}

Json rows_json(const Schedule& schedule) {
  return mapped(schedule.workers, [&](const std::vector<Op>& ops) {
    return mapped(ops, [&](const Op& op) { return to_text(op, schedule.slices); });
  });
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
  // simulate() would refuse a schedule with a deadlock; this shows how far it gets.
  std::vector<double> free(timeline.workers.size(), 0);
  // Visits the ops that can run, and stops where all workers wait.
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

Simulation simulated(const JsonValue& json) {
  Simulation simulation = answer(requested(json));
  for (const Panel& panel : simulation.panels) {
    // Also false for NaN.
    if (!(panel.timeline.makespan < 1e30)) reject("the makespan is too large for a picture; use a larger unit");
  }
  return simulation;
}

/// Ignores the fields about costs.
Drawing drawn(const JsonValue& json) {
  const SimulateRequest request = requested(json);
  // Without lost workers, data_parallel is a cost of all-reduces, and no number of groups to draw.
  const bool is_healthy = !request.lost.is_given();
  return answer(
      DrawRequest{request.schedule, request.pairs, request.lost, is_healthy ? 1 : request.costs.data_parallel});
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

Json with_panel(const Panel& panel, bool has_panel) {
  Json json = {{"totals", totals_json(panel)}};
  if (has_panel) json["panel"] = page_panel(panel);
  return json;
}

std::string file_of(const std::string& format, const JsonValue& request) {
  if (format == "json") return to_json(drawn(request).schedules.front());
  if (format == "csv" || format == "csv-communication")
    return schedule_csv(drawn(request).schedules.front(), format != "csv");
  if (format == "figure") return to_svg(figures(drawn(request)).front());
  if (format == "figure-text") return drawing_text(drawn(request), {});
  // The remaining formats have times, so the simulation comes first. An unknown one must not wait for it.
  const std::vector<std::string> known = {"json", "csv",  "csv-communication", "figure",  "figure-text", "svg",
                                          "html", "text", "timeline",          "perfetto"};
  if (std::ranges::count(known, format) == 0) request.field("format").fail(unknown_name("format", format, known));
  const Simulation simulation = simulated(request);
  const Panel& panel = simulation.panels.front();
  if (format == "svg") return to_svg(panel);
  if (format == "html") return to_html(simulation.panels);
  if (format == "text") return to_text(panel.schedule, panel.timeline);
  if (format == "timeline") return simulation_json(simulation);
  return to_perfetto(panel.schedule, panel.timeline, panel.explanation);
}

}  // namespace

Json answer_check(const JsonValue& json) {
  CheckRequest request;
  CostRequest costs;
  JsonDoor door(json, {"do"});
  request.visit(door);
  // Only for the times of the picture; the checks do not need them.
  costs.visit(door);
  door.finish();
  CheckResult report = answer(request);
  Json answer = {{"report", read_json(check_json(report))},
                 {"excerpts", counter_examples(report)},
                 {"stages", report.schedule.stages},
                 {"micro_batches", report.schedule.micro_batches},
                 {"rows", rows_json(report.schedule)}};
  if (report.is_valid() || !can_be_drawn(report)) return answer;
  const PartialRun run = run_as_far_as_possible(report.schedule, costs.costs_of(report.schedule));
  answer["panel"] = page_panel(run.panel);
  answer["visited"] = run.visited;
  return answer;
}

Json answer_simulate(const JsonValue& request) {
  const std::string view = request.has("view") ? request.text("view") : "panel";
  if (view == "figure") return with_panel(figures(drawn(request)).front(), true);
  const Simulation simulation = simulated(request);
  Json json = with_panel(simulation.panels.front(), view == "panel");
  for (const Panel& panel : std::span(simulation.panels).subspan(1))
    json["with"].push_back(with_panel(panel, view == "panel"));
  if (!simulation.followed.summary.empty()) json["lost"] = simulation.followed.summary;
  if (simulation.followed.kept_makespan) json["kept_makespan"] = *simulation.followed.kept_makespan;
  if (simulation.followed.bound) json["bound"] = *simulation.followed.bound;
  if (!simulation.micro_batch_of_place.empty()) json["micro_batch_of_place"] = simulation.micro_batch_of_place;
  if (!simulation.notes.empty()) json["notes"] = simulation.notes;
  return json;
}

Json answer_sweep(const JsonValue& request) {
  const SweepResult result = answer(read_request<SweepRequest>(request, {"do"}));
  Json json = {{"rows", rows_json(result.rows)}, {"left_out", Json::array()}, {"notes", result.notes}};
  for (const LeftOutSchedule& each : result.left_out)
    json["left_out"].push_back({{"schedule", each.name}, {"reason", each.reason}, {"more", each.more}});
  return json;
}

Json answer_read(const JsonValue& request) {
  return {{"text", to_json(read_request<ScheduleRequest>(request.field("schedule"), {}).make())}};
}

Json answer_export(const JsonValue& request) { return {{"text", file_of(request.text("format"), request)}}; }

}  // namespace chimera::playground
