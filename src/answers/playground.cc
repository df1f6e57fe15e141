#include "answers/playground.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <exception>
#include <new>
#include <vector>

#include "answers/answers.h"
#include "answers/check_answer.h"
#include "answers/model_answer.h"
#include "answers/partial_run.h"
#include "answers/plan_answer.h"
#include "answers/requests.h"
#include "core/choices.h"
#include "core/error.h"
#include "core/json.h"
#include "generate/registry.h"
#include "model_config/config.h"
#include "model_config/parameters.h"
#include "passes/lower.h"
#include "passes/unroll.h"
#include "plan/plan.h"
#include "plan/stage_choice.h"
#include "plan/train_flags.h"
#include "plan/worker_memory.h"
#include "render/colors.h"
#include "render/html.h"
#include "render/page_data.h"
#include "render/perfetto.h"
#include "render/slots.h"
#include "render/svg.h"
#include "render/text.h"
#include "render/timeline_json.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule_csv.h"
#include "schedule/schedule_json.h"
#include "search/limits.h"
#include "search/list_scheduling.h"
#include "simulate/costs.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"

namespace chimera::playground {
namespace {

Json value_json(const ShapeAxis& axis, std::int64_t value) {
  if (axis.is_number()) return value;
  return axis.text(value);
}

Json schedule_json(const Generator& generator) {
  Json parameters = Json::object();
  for (const TakenAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    parameters[std::string(axis.name)] = value_json(axis, taken.usual);
  }
  return {{"name", generator.name},
          {"rule", generator.rule},
          {"constraints", generator.constraints},
          {"closed_form", generator.closed_form},
          {"activations", generator.activations},
          {"source", generator.source},
          {"synchronous", generator.synchronous},
          {"stages", generator.figure.stages},
          {"micro_batches", generator.figure.micro_batches},
          {"parameters", parameters}};
}

Json axes_json() {
  Json axes = Json::array();
  for (const ShapeAxis& axis : shape_axes()) {
    axes.push_back({{"name", axis.name},
                    {"symbol", axis.symbol},
                    {"meaning", axis.meaning},
                    {"least", axis.least},
                    {"values", std::vector<std::string>(axis.names.begin(), axis.names.end())}});
  }
  return axes;
}

Json placements_json() {
  Json placements = Json::array();
  for (const NamedPlacement& placement : named_placements()) {
    Json parameters = Json::array();
    for (const Axis axis : placement.axes) parameters.push_back(shape_axis(axis).name);
    placements.push_back({{"name", placement.name}, {"parameters", parameters}});
  }
  return placements;
}

Json models_json() {
  Json models = Json::array();
  for (const std::string& name : preset_names()) {
    const ModelConfig model = find_model(name);
    models.push_back({{"name", name},
                      {"family", to_text(model.family)},
                      {"layers", model.layers},
                      {"hidden", model.hidden},
                      {"heads", model.heads},
                      {"key_value_heads", key_value_heads_of(model)},
                      {"vocabulary", model.vocabulary},
                      {"positions", model.positions},
                      {"tied", model.tied}});
  }
  return models;
}

}  // namespace

Json catalog() {
  Json json = {{"schedules", Json::array()},
               {"axes", axes_json()},
               {"placements", placements_json()},
               {"models", models_json()},
               {"dtypes", names_of<DataType>()},
               {"optimizers", names_of<OptimizerKind>()},
               {"syncs", names_of<AllReducePlacement>()},
               {"page", page_colors()}};
  for (const Generator& generator : generators()) json["schedules"].push_back(schedule_json(generator));
  for (int kind = 0; kind < kOpKinds; ++kind) json["op_colors"].push_back(to_hex(color_of(static_cast<OpKind>(kind))));
  return json;
}

namespace {

Limits requested_limits(const JsonValue& request) {
  Limits limits;
  if (request.has("max_in_flight")) limits.in_flight = request.number("max_in_flight");
  return limits;
}

bool can_be_drawn(const CheckReport& report) {
  return std::none_of(report.findings.begin(), report.findings.end(), [](const Finding& finding) {
    return finding.violation.kind == ViolationKind::BadPlacement || finding.violation.kind == ViolationKind::OutOfRange;
  });
}

Json counter_examples(const CheckReport& report) {
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

}  // namespace

Json checked(const JsonValue& request) {
  CheckReport report = examine(requested_schedule(request.field("schedule")), requested_limits(request),
                               truth_or(request, "strict_order", false));
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

namespace {

Json workers_json(const Schedule& schedule, const StageModel& model, const std::set<StageId>& recompute) {
  const std::vector<double> peaks = peaks_by_order(schedule, model, recompute);
  Json workers = Json::array();
  for (std::size_t w = 0; w < schedule.workers.size(); ++w) {
    double flops = 0;
    for (const Op& op : schedule.workers[w]) {
      const StageFootprint& stage = model.footprints[op.stage.index()];
      if (op.kind == OpKind::Forward) flops += stage.forward_flops;
      if (gives_input_gradient(op.kind)) flops += stage.input_gradient_flops;
      if (gives_weight_gradient(op.kind)) flops += stage.weight_gradient_flops;
      if (gives_input_gradient(op.kind) && recompute.contains(op.stage)) flops += stage.forward_flops;
    }
    Json held = Json::array();
    double state = 0;
    for (const auto& replica : schedule.placement.worker_of) {
      for (std::size_t s = 0; s < replica.size(); ++s) {
        if (replica[s].index() != w) continue;
        held.push_back(s);
        const StageMemory& memory = model.footprints[s].memory;
        state += memory.weights + memory.gradients + memory.optimizer;
      }
    }
    workers.push_back({{"stages", held}, {"flops", flops}, {"state_bytes", state}, {"peak_bytes", peaks[w]}});
  }
  return workers;
}

}  // namespace

Json modeled(const JsonValue& request) {
  const ModelConfig model = requested_model(request);
  const Schedule schedule = valid_schedule(request.field("schedule"));
  const StageChoice choice = parse_stages(kRecomputeFlag, text_or(request, "recompute", "none"));
  Workload workload = requested_workload(request);
  workload.recompute_attention = choice.rule == StageRule::Attention;
  const auto partition = named_partition(
      parse_partition(text_or(request, "partition", "even")),
      {.schedule = schedule, .model = model, .workload = workload, .recompute = choice.rule == StageRule::Full});
  const StageModel stages = stage_bytes(model, partition, schedule, workload);
  const double memory = number_or(request, "memory_bytes", 0);
  // With `auto`, all stages if even this does not fit.
  const std::set<StageId> recompute = resolve_stages(choice, kRecomputeFlag, schedule.stages, [&] {
    return stages_to_recompute(schedule, stages, memory).value_or(all_stages(schedule.stages));
  });
  const ModelReport report{model, partition, workload,
                           parse_named<DataType>("dtype", text_or(request, "dtype", to_text(DataType::Float32))),
                           parse_named<OptimizerKind>("optimizer", text_or(request, "optimizer", "adamw"))};
  CostModel costs = flop_costs(report);
  if (!recompute.empty()) costs.recompute.assign(costs.stages.size(), 0);
  for (const StageId stage : recompute) costs.recompute[stage.index()] = costs.stages[stage.index()].forward;
  return {
      {"model", read_json(model_json(report))},
      {"partition", to_text(partition)},
      {"recompute", workload.recompute_attention ? to_text(choice) : to_text(stage_choice(recompute, schedule.stages))},
      {"workers", workers_json(schedule, stages, recompute)},
      {"model_flops", model_flops(model, workload)},
      {"costs", {{"file", costs_to_json(costs)}}}};
}

namespace {

constexpr double kSecondsBetweenReports = 0.1;

struct Start {
  Layout layout;
  std::vector<Schedule> schedules;
};

/// Uses the placement and order of a schedule.
Start start_from(const JsonValue& value) {
  Schedule schedule = valid_schedule(value);
  if (schedule.updates || schedule.micro_batch_scale != 1)
    throw ConfigError("search: only synchronous schedules of full micro-batches can be searched");
  Layout layout{static_cast<std::int64_t>(schedule.workers.size()), schedule.stages, schedule.placement,
                micro_batches_of_replicas(schedule), schedule.slices};
  return {std::move(layout), {std::move(schedule)}};
}

/// Uses a shape and a placement name with all generated orders.
Start start_of_shape(const JsonValue& request) {
  const std::string name = text_or(request, "placement", named_placements().front().name);
  std::vector<std::string> known;
  for (const NamedPlacement& placement : named_placements()) {
    known.emplace_back(placement.name);
    if (name != placement.name) continue;
    PipelineShape usual;
    usual.chunks = placement.chunks;
    const PipelineShape shape = requested_shape(request, usual);
    Layout layout = layout_of(placement.kind, shape);
    std::vector<Schedule> schedules = generated_starts(layout, shape);
    return {std::move(layout), std::move(schedules)};
  }
  throw ConfigError(unknown_name("placement", name, known));
}

bool splits_backwards(const Start& start) {
  if (start.schedules.empty()) return true;
  return std::any_of(
      start.schedules.front().workers.begin(), start.schedules.front().workers.end(), [](const std::vector<Op>& ops) {
        return std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::BackwardInput; });
      });
}

std::function<void(const SearchProgress&)> reporter(const Progress& progress) {
  if (!progress) return nullptr;
  return [progress, next = 0.0](const SearchProgress& now) mutable {
    if (now.seconds < next) return;
    next = now.seconds + kSecondsBetweenReports;
    progress(json_text(Json{{"seconds", now.seconds},
                            {"makespan", now.makespan},
                            {"lower_bound", now.lower_bound},
                            {"origin", now.origin}}));
  };
}

SearchOptions requested_options(const JsonValue& request, const Progress& progress) {
  SearchOptions options;
  options.seed = static_cast<std::uint64_t>(count_or(request, "seed", 0));
  options.progress = reporter(progress);
  if (request.has("iterations")) options.iterations = request.count("iterations", 1);
  options.seconds.reset();
  if (request.has("seconds") || !options.iterations) options.seconds = number_or(request, "seconds", 1);
  return options;
}

}  // namespace

Json searched(const JsonValue& request, const Progress& progress) {
  Start start = request.has("schedule") ? start_from(request.field("schedule")) : start_of_shape(request);
  const Schedule empty = without_ops(start.layout);
  SearchProblem problem{
      start.layout, requested_costs(request, empty), truth_or(request, "split_backward", splits_backwards(start)), {}};
  if (request.has("max_in_flight"))
    problem.limits.push_back(limit_in_flight(problem.layout, request.number("max_in_flight"), "max_in_flight"));
  const SearchResult result = search(problem, start.schedules, requested_options(request, progress));
  Json json = read_json(search_json(result));
  json["schedule"] = {{"text", to_json(result.schedule)}};
  return json;
}

namespace {

/// Schedule of several steps, or of a single step.
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
  Timeline timeline = simulate(schedule, costs, {.steps = steps});
  if (!(timeline.makespan < 1e30)) throw ConfigError("the makespan is too large for a picture; use a larger unit");
  return {std::move(schedule), std::move(costs), std::move(timeline)};
}

/// Sliders set no sizes of messages and gradients; volumes are then numbers of tensors.
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
    const bool is_whole = panel.schedule.slices == 1;
    double peak = 0;
    for (const MemoryPoint& point : panel.explanation.memory[w]) peak = std::max(peak, point.amount);
    workers.push_back(
        {{"busy", worker.busy},
         {"idle", worker.idle},
         {"in_flight", is_whole ? Json(worker.peak_in_flight) : Json(micro_batches_in_flight(panel.schedule, worker))},
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

namespace {

LayerTime requested_time(const JsonValue& value) {
  value.expect_object({"micro_batch_size", "forward", "input_gradient", "weight_gradient"});
  LayerTime time{value.count("micro_batch_size", 1), value.number("forward"), value.number("input_gradient"),
                 value.number("weight_gradient")};
  time.recompute = time.forward;
  return time;
}

OwnLayer requested_layer(const JsonValue& value) {
  value.expect_object({"times", "weights", "state", "activations", "output"});
  OwnLayer layer{
      {}, value.number("weights"), value.number("state"), value.number("activations"), value.number("output")};
  for (const JsonValue& time : value.field("times").list()) {
    const LayerTime& next = layer.times.emplace_back(requested_time(time));
    const bool ascends = layer.times.size() < 2 || (layer.times.rbegin() + 1)->micro_batch_size < next.micro_batch_size;
    if (!ascends) time.field("micro_batch_size").fail("must be larger than the one before");
  }
  if (layer.times.empty()) value.field("times").fail("needs at least one entry");
  return layer;
}

/// Sets a preset model on a machine, or measured `layers` with an optional machine for messages, all-reduces and
/// updates.
void set_model(const JsonValue& request, PlanProblem& problem) {
  const bool own = request.has("layers");
  if (!own || request.has("machine")) problem.machine = machine_from_json(request.text("machine"), "machine");
  if (!own) {
    problem.model = requested_model(request);
    return;
  }
  for (const JsonValue& layer : request.field("layers").list()) problem.layers.push_back(requested_layer(layer));
  if (problem.layers.empty()) request.field("layers").fail("needs at least one layer");
  problem.model.name = "the model";
  problem.model.layers = static_cast<std::int64_t>(problem.layers.size());
}

PlanProblem requested_problem(const JsonValue& request) {
  PlanProblem problem;
  set_model(request, problem);
  problem.workers = request.count("workers", 1);
  problem.mini_batch = request.count("mini_batch", 1);
  problem.memory_bytes = number_or(request, "memory_bytes", 0);
  if (problem.memory_bytes <= 0) problem.memory_bytes = problem.machine.memory_bytes;
  if (problem.memory_bytes <= 0) throw ConfigError("memory is missing, and the machine's profile has none");
  problem.workload = requested_workload(request);
  problem.workload.micro_batch_size = 1;
  problem.sync =
      parse_named<AllReducePlacement>("sync", text_or(request, "sync", to_text(AllReducePlacement::EagerOpt)));
  problem.shard_optimizer = truth_or(request, "shard_optimizer", false);
  return problem;
}

std::vector<std::int64_t> given_counts(const JsonValue& request, const char* name) {
  std::vector<std::int64_t> counts;
  if (!request.has(name)) return counts;
  for (const JsonValue& value : request.field(name).list()) {
    const double number = value.number(1e9);
    if (number < 1 || number != std::floor(number)) value.fail("must be a whole number of at least 1");
    counts.push_back(static_cast<std::int64_t>(number));
  }
  return counts;
}

PlanOptions requested_options(const JsonValue& request) {
  PlanOptions options;
  options.given.stages = given_counts(request, "stages");
  options.given.data_parallel = given_counts(request, "data_parallel");
  options.given.micro_batch_sizes = given_counts(request, "micro_batch_sizes");
  if (request.has("schedules")) {
    for (const JsonValue& name : request.field("schedules").list()) options.schedules.push_back(name.text());
  }
  options.partition = parse_partition(text_or(request, "partition", "balanced"));
  options.recompute_all = truth_or(request, "recompute_all", false);
  options.top = count_or(request, "top", 10, 1);
  return options;
}

Json schedule_json(const Candidate& candidate) {
  Json parameters = Json::object();
  for (const TakenAxis& taken : find_generator(candidate.schedule).axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    if (axis.is_number()) {
      parameters[std::string(axis.name)] = axis.get(candidate.shape);
    } else {
      parameters[std::string(axis.name)] = axis.text(candidate.shape);
    }
  }
  return {{"name", candidate.schedule},
          {"stages", candidate.shape.stages},
          {"micro_batches", candidate.shape.micro_batches},
          {"parameters", parameters}};
}

/// Returns data to open a candidate elsewhere.
Json opened(const PlanProblem& problem, Predictor& predictor, const Candidate& candidate) {
  const PlannedSchedule planned = predictor.prepare(candidate);
  Json layers = Json::array();
  for (const StageLayers& stage : planned.partition) layers.push_back(stage.end_layer - stage.first_layer);
  return {{"words", in_words(candidate)},
          {"schedule", schedule_json(candidate)},
          {"layers", layers},
          {"costs", {{"file", costs_to_json(planned.model.costs)}}},
          {"least_seconds", least_step_seconds(problem, candidate)},
          {"train", to_words(train_flags(problem, candidate))}};
}

}  // namespace

Json planned(const JsonValue& request) {
  const PlanProblem problem = requested_problem(request);
  const PlanReport report = plan_report(problem, requested_options(request), PlanRule::Simulation);
  Json json = {{"report", read_json(plan_json(report))},
               {"machine", problem.machine.name},
               {"memory_bytes", problem.memory_bytes},
               {"open", Json::array()}};
  Predictor predictor(problem);
  for (const ReportedCandidate& each : report.candidates)
    json["open"].push_back(opened(problem, predictor, each.ranked.candidate));
  if (report.with_more_memory) json["more_memory_words"] = in_words(report.with_more_memory->candidate);
  return json;
}

namespace {

Json answer_to(const JsonValue& request, const Progress& progress) {
  const std::string what = request.text("do");
  if (what == "catalog") return catalog();
  if (what == "simulate") return simulated(request);
  if (what == "export") return exported(request);
  if (what == "read") return read_as_it_is(request);
  if (what == "check") return checked(request);
  if (what == "search") return searched(request, progress);
  if (what == "model") return modeled(request);
  if (what == "plan") return planned(request);
  const std::vector<std::string> known = {"catalog", "simulate", "export", "read", "check", "search", "model", "plan"};
  request.field("do").fail(unknown_name("request", what, known));
}

std::string one_line(const Json& json) { return json_text(json); }

}  // namespace

std::string answer(std::string_view request, const Progress& progress) {
  try {
    const nlohmann::json json = parse_json(std::string(request), "request");
    return one_line(answer_to(JsonValue(json, "request"), progress));
  } catch (const std::bad_alloc&) {
    return one_line({{"error", "out of memory; use fewer stages or micro-batches"}});
  } catch (const std::exception& error) {
    return one_line({{"error", error.what()}});
  }
}

}  // namespace chimera::playground
