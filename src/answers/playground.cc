// The catalog tells the page what there is: schedules, their parameters, placements, models. It is made from the
// registries, so the page has no lists of its own. The other answers are those of the commands, with what only a page
// needs: the data of a picture (page_panel()), a picture of a schedule that cannot run, as far as it runs
// (run_as_far_as_possible()), schedules as text, costs as files, and data with which a candidate opens in another tab.
// Messages are written for the command line; with_fields() spells their flags as the page does.

#include "answers/playground.h"

#include <algorithm>
#include <cctype>
#include <exception>
#include <new>
#include <utility>

#include "answers/check_answer.h"
#include "answers/door.h"
#include "answers/model_answer.h"
#include "answers/plan_request.h"
#include "answers/schedule_answer.h"
#include "answers/search_answer.h"
#include "answers/simulate_answer.h"
#include "answers/sweep_answer.h"
#include "core/choices.h"
#include "core/json.h"
#include "core/json_fields.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "generate/registry.h"
#include "model_config/config.h"
#include "plan/plan.h"
#include "plan/train_flags.h"
#include "render/colors.h"
#include "render/html.h"
#include "render/perfetto.h"
#include "render/svg.h"
#include "render/text.h"
#include "render/timeline_json.h"
#include "schedule/dependencies.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule_json.h"
#include "simulate/cost_table.h"
#include "simulate/costs_json.h"
#include "simulate/summary.h"

namespace chimera::playground {
namespace {

using Json = nlohmann::ordered_json;

/// Returns the parameters that the schedule has, with their values in `shape`.
Json parameters_json(const Generator& generator, const PipelineShape& shape) {
  Json parameters = Json::object();
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    parameters[std::string(axis.name)] = axis_json(axis, axis.get(shape));
  }
  return parameters;
}

Json generator_json(const Generator& generator) {
  const PipelineShape& figure = generator.figure;
  const PipelineShape usual = default_shape(generator, figure.stages, figure.micro_batches);
  return {{"name", generator.name},
          {"rule", generator.rule},
          {"constraints", generator.constraints},
          {"closed_form", generator.closed_form},
          {"activations", generator.activations},
          {"source", generator.source},
          {"synchronous", generator.synchronous},
          {"stages", figure.stages},
          {"micro_batches", figure.micro_batches},
          {"parameters", parameters_json(generator, usual)}};
}

Json axes_json() {
  return mapped(shape_axes(), [](const ShapeAxis& axis) {
    return Json{{"name", axis.name},
                {"symbol", axis.symbol},
                {"meaning", axis.meaning},
                {"least", axis.least},
                {"values", std::vector<std::string>(axis.names.begin(), axis.names.end())}};
  });
}

Json placements_json() {
  return mapped(named_placements(), [](const NamedPlacement& placement) {
    return Json{{"name", placement.name},
                {"parameters", mapped(placement.axes, [](Axis axis) { return shape_axis(axis).name; })}};
  });
}

Json models_json() {
  return mapped(preset_names(), [](const std::string& name) {
    const ModelConfig model = find_model(name);
    return Json{{"name", name},
                {"family", to_text(model.family)},
                {"layers", model.layers},
                {"hidden", model.hidden},
                {"heads", model.heads},
                {"key_value_heads", key_value_heads_of(model)},
                {"vocabulary", model.vocabulary},
                {"positions", model.positions},
                {"tied", model.tied}};
  });
}

/// Returns the names that the page offers: schedules with parameters, placements, models, data types, optimizers; and
/// its colors.
Json answer_catalog() {
  Json json = {{"schedules", mapped(generators(), generator_json)},
               {"axes", axes_json()},
               {"placements", placements_json()},
               {"models", models_json()},
               {"dtypes", names_of<DataType>()},
               {"optimizers", names_of<OptimizerKind>()},
               {"syncs", names_of<AllReducePlacement>()},
               {"page", page_colors()}};
  for (int kind = 0; kind < kOpKinds; ++kind) json["op_colors"].push_back(to_hex(color_of(static_cast<OpKind>(kind))));
  return json;
}

SimulateRequest requested(const JsonValue& json) {
  return read_request<SimulateRequest>(json, {"do", "view", "format"});
}

bool can_be_drawn(const CheckResult& report) {
  // With these two kinds, ids do not exist, and the picture indexes by them. Other violations can be shown.
  return std::ranges::none_of(report.findings, [](const Finding& finding) {
    return finding.violation.kind == ViolationKind::BadPlacement || finding.violation.kind == ViolationKind::OutOfRange;
  });
}

Json counter_examples(const CheckResult& report) {
  Json texts = Json::array();
  for (const Finding& finding : report.findings)
    if (!finding.is_note) texts.push_back(finding.excerpt);
  return texts;
}

Json rows_json(const Schedule& schedule) {
  return mapped(schedule.workers, [&](const std::vector<Op>& ops) {
    return mapped(ops, [&](const Op& op) { return to_text(op, schedule.slices); });
  });
}

/// Simulates the ops that can run, without message times. Skips ops whose inputs never arrive, and all later ops of the
/// same worker. Requires ids in range and a valid placement. Returns `panel`, the data of a picture, and `visited`, for
/// each worker the number of ops that can run.
Json run_as_far_as_possible(const Schedule& schedule, const CostModel& costs) {
  const OpTable table(schedule);
  const CostTable durations(schedule, costs);
  Timeline timeline = empty_timeline(schedule);
  const auto timed = [&](OpIndex op) -> TimedOp& {
    const std::size_t worker = table.worker(op);
    return timeline.workers[worker].ops[op - table.first(worker)];
  };
  std::vector<double> free(timeline.workers.size(), 0);  // [worker]: end of its last op
  // simulate() would refuse a schedule with a deadlock. This visits the ops that can run, and stops where all workers
  // wait.
  const std::vector<std::size_t> visited = visit_in_dependency_order(table, [&](OpIndex op) {
    // An op starts when its worker is free and its inputs are there; messages take no time.
    double start = free[table.worker(op)];
    for (const OpIndex input : table.inputs(table.op(op))) {
      if (input != kNoOp) start = std::max(start, timed(input).end);
    }
    timed(op) = {start, start + durations.duration(table.op(op))};
    free[table.worker(op)] = timed(op).end;
  });
  double reached = 0;
  for (const double end : free) reached = std::max(reached, end);
  for (std::size_t w = 0; w < visited.size(); ++w) {
    // The page draws ops that cannot run after all others, in the order of their worker, and marks them.
    double time = reached;
    for (std::size_t i = visited[w]; i < timeline.workers[w].ops.size(); ++i) {
      const double start = std::exchange(time, time + durations.duration(schedule.workers[w][i]));
      timeline.workers[w].ops[i] = {start, time};
    }
    timeline.makespan = std::max(timeline.makespan, time);
  }
  timeline.ops_end = timeline.makespan;
  const Panel panel{
      .title = schedule.name, .schedule = schedule, .timeline = std::move(timeline), .explanation = {}, .totals = {}};
  return {{"panel", page_panel(panel)}, {"visited", visited}};
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

/// Returns the violations in a schedule. If there are any, and its stages and ops can be drawn, also returns a picture
/// that marks the ops that cannot run.
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
  answer.update(run_as_far_as_possible(report.schedule, costs.costs_of(report.schedule)));
  return answer;
}

/// Simulates a schedule. Returns its totals, such as makespan (duration of a step) and bubble ratio (idle share of it),
/// and the data of its picture (`panel`) unless the request asks for the totals only.
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

/// Ranks schedules as `chimera sweep` does. Returns `rows`, an object of columns each, the schedules that were
/// `left_out`, and `notes`.
Json answer_sweep(const JsonValue& request) {
  const SweepResult result = answer(read_request<SweepRequest>(request, {"do"}));
  Json json = {{"rows", rows_json(result.rows)}, {"left_out", Json::array()}, {"notes", result.notes}};
  for (const LeftOutSchedule& each : result.left_out)
    json["left_out"].push_back({{"schedule", each.name}, {"reason", each.reason}, {"more", each.more}});
  return json;
}

/// Reads a schedule, which may be CSV, and returns `text`: the schedule as a JSON file, without validation.
Json answer_read(const JsonValue& request) {
  return {{"text", to_json(read_request<ScheduleRequest>(request.field("schedule")).make())}};
}

/// Returns `text`: a file in the requested `format`, with a schedule, or with the times of its ops.
Json answer_export(const JsonValue& request) { return {{"text", file_of(request.text("format"), request)}}; }

constexpr double kSecondsBetweenReports = 0.1;

std::function<void(const SearchProgress&)> reporter(const Progress& progress) {
  if (!progress) return nullptr;
  return [progress, next = 0.0](const SearchProgress& now) mutable {
    // The search reports far more often than a page can draw.
    if (now.seconds < next) return;
    next = now.seconds + kSecondsBetweenReports;
    progress(json_text(Json{{"seconds", now.seconds},
                            {"makespan", now.makespan},
                            {"lower_bound", now.lower_bound},
                            {"origin", now.origin}}));
  };
}

void visit_layer(JsonFields& json, OwnLayer& layer) {
  visit_times(json, layer.times);
  json.field("weights", layer.weights);
  json.field("state", layer.state);
  json.field("activations", layer.activations);
  json.field("output", layer.output);
}

/// Returns data to open a candidate elsewhere.
Json candidate_to_open(const PlanProblem& problem, Predictor& predictor, const Candidate& candidate) {
  const PlannedSchedule planned = predictor.prepare(candidate);
  return {{"words", describe(candidate)},
          {"schedule",
           {{"name", candidate.schedule},
            {"stages", candidate.shape.stages},
            {"micro_batches", candidate.shape.micro_batches},
            {"parameters", parameters_json(find_generator(candidate.schedule), candidate.shape)}}},
          {"layers", mapped(planned.partition, &StageLayers::blocks)},
          {"costs", {{"file", costs_to_json(planned.model.costs)}}},
          {"least_seconds", least_step_seconds(problem, {candidate}).front()},
          {"train", to_words(train_flags(problem, candidate))}};
}

/// Returns the stages of a partitioned model, their costs, and the FLOPs and memory of each worker.
Json answer_model(const JsonValue& json) {
  auto request = read_request<ModelRequest>(json, {"do"});
  // The page always shows workers.
  if (request.schedule.name.empty() && request.schedule.is_named()) request.schedule.name = kPlainSchedule;
  const ModelAnswer found = answer(request);
  const auto workers = mapped(found.workers, [](const WorkerFootprint& worker) {
    return Json{{"stages", numbers_of_ids(worker.stages)},
                {"flops", worker.flops},
                {"state_bytes", worker.held_bytes},
                {"peak_bytes", worker.peak_bytes}};
  });
  return {{"model", read_json(model_json(found))},
          {"partition", to_text(found.partition)},
          {"recompute", to_text(found.recompute)},
          {"workers", workers},
          {"model_flops", model_flops(found.model, found.workload)},
          {"costs", {{"file", costs_to_json(costs_of(found))}}}};
}

/// Returns the best schedule that a search found. During the search, calls `progress` with the JSON objects of
/// Progress (playground.h).
Json answer_search(const JsonValue& json, const Progress& progress) {
  auto request = read_request<SearchRequest>(json, {"do", "schedule"});
  if (json.has("schedule")) request.start = read_request<ScheduleRequest>(json.field("schedule"));
  // People wait for the answer, so a search takes a second unless they ask for more.
  request.usual_seconds = 1;
  const SearchAnswer found = answer(request, reporter(progress));
  Json answer = read_json(search_json(found.result));
  answer["schedule"] = {{"text", to_json(found.result.schedule)}};
  if (!found.notes.empty()) answer["notes"] = found.notes;
  return answer;
}

/// Returns the configurations with the shortest step times for the `workers` and the `mini_batch` of the request,
/// fastest first: at most `top` (a field of the request, default 10). The result has a report, and for each
/// configuration the data with which the page can open it in another tab.
Json answer_plan(const JsonValue& json) {
  auto request = read_request<PlanRequest>(json, {"do", "layers"});
  if (json.has("layers")) {
    for (const JsonValue& layer : json.field("layers").list())
      JsonFields::read(layer, request.layers.emplace_back(), visit_layer);
    if (request.layers.empty()) json.field("layers").fail("needs at least one layer");
  }
  const PlanAnalysis report = answer(request);
  const PlanProblem& problem = report.problem;
  Json found = {{"report", read_json(plan_json(report))},
                {"machine", problem.machine.name},
                {"memory_bytes", problem.memory_bytes},
                {"open", Json::array()}};
  // The page opens any row in its other tabs, with the same schedule, layers and costs.
  Predictor predictor(problem);
  for (const AnalyzedCandidate& each : report.candidates)
    found["open"].push_back(candidate_to_open(problem, predictor, each.ranked.candidate));
  if (report.with_more_memory) found["more_memory_words"] = describe(report.with_more_memory->candidate);
  return found;
}

Json answer_to(const JsonValue& request, const Progress& progress) {
  const std::string what = request.text("do");
  if (what == "catalog") return answer_catalog();
  if (what == "simulate") return answer_simulate(request);
  if (what == "export") return answer_export(request);
  if (what == "read") return answer_read(request);
  if (what == "check") return answer_check(request);
  if (what == "sweep") return answer_sweep(request);
  if (what == "search") return answer_search(request, progress);
  if (what == "model") return answer_model(request);
  if (what == "plan") return answer_plan(request);
  const std::vector<std::string> known = {"catalog", "simulate", "export", "read", "check",
                                          "sweep",   "search",   "model",  "plan"};
  request.field("do").fail(unknown_name("request", what, known));
}

/// Spells flags as fields: `--max-in-flight` becomes `max_in_flight`.
std::string with_fields(const std::string& message) {
  std::string text;
  bool is_flag = false;
  for (std::size_t i = 0; i < message.size(); ++i) {
    // A flag begins a word and continues with lower-case letters; other dashes of a message stay.
    const bool begins = message.compare(i, 2, "--") == 0 && (i == 0 || message[i - 1] == ' ') &&
                        i + 2 < message.size() && std::islower(static_cast<unsigned char>(message[i + 2])) != 0;
    if (begins) i += 2;
    is_flag = begins || (is_flag && (message[i] == '-' || std::islower(static_cast<unsigned char>(message[i])) != 0));
    text += is_flag && message[i] == '-' ? '_' : message[i];
  }
  return text;
}

}  // namespace

std::string answer(std::string_view request, const Progress& progress) {
  try {
    const nlohmann::json json = parse_json(std::string(request), "request");
    return json_text(answer_to(JsonValue(json, ""), progress));
  } catch (const std::bad_alloc&) {
    // WebAssembly has 4 GiB at most, so that large schedules end here.
    return json_text(Json{{"error", "out of memory; use fewer stages or micro-batches"}});
  } catch (const std::exception& error) {
    return json_text(Json{{"error", with_fields(error.what())}});
  }
}

}  // namespace chimera::playground
