// The catalog tells the page what there is: schedules, their parameters, placements, models. It is made from the
// registries, so the page has no lists of its own. Answers about models, searches and plans are those of the commands,
// with what only a page needs: schedules as text, costs as files, and data with which a candidate opens in another tab.
// schedule_answers.h answers all other requests. Messages are written for the command line; with_fields() spells their
// flags as the page does.

#include "answers/playground.h"

#include <cctype>
#include <exception>
#include <new>

#include "answers/door.h"
#include "answers/model_answer.h"
#include "answers/plan_request.h"
#include "answers/schedule_answers.h"
#include "answers/search_answer.h"
#include "core/json.h"
#include "core/mapped.h"
#include "generate/registry.h"
#include "model_config/config.h"
#include "plan/plan.h"
#include "plan/train_flags.h"
#include "render/colors.h"
#include "render/html.h"
#include "schedule/place_all_reduces.h"
#include "schedule/schedule_json.h"
#include "simulate/costs_json.h"

namespace chimera::playground {
namespace {

Json generator_json(const Generator& generator) {
  Json parameters = Json::object();
  for (const SupportedAxis& taken : generator.axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    parameters[std::string(axis.name)] = axis_json(axis, taken.usual);
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

LayerTime requested_time(const JsonValue& value) {
  value.expect_object({"micro_batch_size", "forward", "input_gradient", "weight_gradient"});
  LayerTime time{value.count("micro_batch_size", 1), value.number("forward"), value.number("input_gradient"),
                 value.number("weight_gradient")};
  // Recomputation runs the forward again.
  time.recompute = time.forward;
  return time;
}

OwnLayer requested_layer(const JsonValue& value) {
  value.expect_object({"times", "weights", "state", "activations", "output"});
  OwnLayer layer{
      {}, value.number("weights"), value.number("state"), value.number("activations"), value.number("output")};
  for (const JsonValue& time : value.field("times").list()) {
    const LayerTime& next = layer.times.emplace_back(requested_time(time));
    // Times between two sizes are interpolated, which needs ascending sizes.
    const bool ascends = layer.times.size() < 2 || (layer.times.rbegin() + 1)->micro_batch_size < next.micro_batch_size;
    if (!ascends) time.field("micro_batch_size").fail("must be larger than the one before");
  }
  if (layer.times.empty()) value.field("times").fail("needs at least one entry");
  return layer;
}

Json candidate_schedule_json(const Candidate& candidate) {
  Json parameters = Json::object();
  for (const SupportedAxis& taken : find_generator(candidate.schedule).axes) {
    const ShapeAxis& axis = shape_axis(taken.axis);
    parameters[std::string(axis.name)] = axis_json(axis, axis.get(candidate.shape));
  }
  return {{"name", candidate.schedule},
          {"stages", candidate.shape.stages},
          {"micro_batches", candidate.shape.micro_batches},
          {"parameters", parameters}};
}

/// Returns data to open a candidate elsewhere.
Json candidate_to_open(const PlanProblem& problem, Predictor& predictor, const Candidate& candidate) {
  const PlannedSchedule planned = predictor.prepare(candidate);
  return {{"words", describe(candidate)},
          {"schedule", candidate_schedule_json(candidate)},
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
  auto request = read_request<SearchRequest>(json, {"do"});
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
    for (const JsonValue& layer : json.field("layers").list()) request.layers.push_back(requested_layer(layer));
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
