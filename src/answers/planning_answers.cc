#include "answers/planning_answers.h"

#include <fmt/format.h>

#include <cmath>
#include <vector>

#include "answers/json_door.h"
#include "answers/model_answer.h"
#include "answers/plan_answer.h"
#include "answers/requests.h"
#include "answers/search_answer.h"
#include "core/choices.h"
#include "core/complete_name.h"
#include "core/error.h"
#include "core/json.h"
#include "generate/registry.h"
#include "plan/plan.h"
#include "plan/train_flags.h"
#include "plan/worker_memory.h"
#include "schedule/schedule_json.h"
#include "simulate/costs_json.h"

namespace chimera::playground {
namespace {

constexpr double kSecondsBetweenReports = 0.1;

std::function<void(const SearchProgress&)> reporter(const ReportProgress& progress) {
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
    // Times between two sizes are interpolated, which needs ascending sizes.
    const bool ascends = layer.times.size() < 2 || (layer.times.rbegin() + 1)->micro_batch_size < next.micro_batch_size;
    if (!ascends) time.field("micro_batch_size").fail("must be larger than the one before");
  }
  if (layer.times.empty()) value.field("times").fail("needs at least one entry");
  return layer;
}

/// Sets a preset model on a machine, or measured `layers` with an optional machine for messages, all-reduces and
/// updates.
void set_model(const JsonValue& request, PlanProblem& problem) {
  // A user's own layers have measured times, so that a machine is needed only for messages.
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
  // The planner chooses it.
  problem.workload.micro_batch_size = 1;
  problem.sync =
      parse_named<AllReducePlacement>("sync", text_or(request, "sync", to_text(AllReducePlacement::EagerOpt)));
  problem.shard_optimizer = bool_or(request, "shard_optimizer", false);
  return problem;
}

std::vector<std::int64_t> given_counts(const JsonValue& request, const char* name) {
  std::vector<std::int64_t> counts;
  if (!request.has(name)) return counts;
  for (const JsonValue& value : request.field(name).list()) {
    const double number = value.number(1e9);
    // JSON has only one kind of number.
    if (number < 1 || number != std::floor(number)) value.fail("must be a whole number of at least 1");
    counts.push_back(static_cast<std::int64_t>(number));
  }
  return counts;
}

PlanOptions plan_options(const JsonValue& request) {
  PlanOptions options;
  options.given.stages = given_counts(request, "stages");
  options.given.data_parallel = given_counts(request, "data_parallel");
  options.given.micro_batch_sizes = given_counts(request, "micro_batch_sizes");
  if (request.has("schedules")) {
    for (const JsonValue& name : request.field("schedules").list())
      options.schedules.push_back(complete_name(name.text(), schedule_names()));
  }
  options.partition = parse_partition(text_or(request, "partition", "balanced"));
  options.recompute_all = bool_or(request, "recompute_all", false);
  options.top = count_or(request, "top", 10, 1);
  return options;
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
  Json layers = Json::array();
  for (const StageLayers& stage : planned.partition) layers.push_back(stage.blocks());
  return {{"words", describe(candidate)},
          {"schedule", candidate_schedule_json(candidate)},
          {"layers", layers},
          {"costs", {{"file", costs_to_json(planned.model.costs)}}},
          {"least_seconds", least_step_seconds(problem, candidate)},
          {"train", to_words(train_flags(problem, candidate))}};
}

}  // namespace

Json answer_model(const JsonValue& request) {
  const ModelConfig model = requested_model(request);
  const Schedule schedule = requested_schedule(request.field("schedule")).make_valid();
  const StageChoice choice = parse_stages(kRecomputeFlag, text_or(request, "recompute", "none"));
  Workload workload = requested_workload(request);
  workload.recompute_attention = choice.rule == StageRule::Attention;
  const auto partition = resolve_partition(
      parse_partition(text_or(request, "partition", "even")),
      {.schedule = schedule, .model = model, .workload = workload, .recompute = choice.rule == StageRule::Full});
  // Bytes alone: `auto` chooses stages by memory, not by time.
  const StageModel stages = stage_bytes(model, partition, schedule, workload);
  const double memory = number_or(request, "memory_bytes", 0);
  // With `auto`, all stages if even this does not fit.
  const std::set<StageId> recompute = resolve_stages(choice, kRecomputeFlag, schedule.stages, [&] {
    return stages_to_recompute(schedule, stages, memory).value_or(all_stages(schedule.stages));
  });
  const ModelSummary report{model, partition, workload,
                            parse_named<DataType>("dtype", text_or(request, "dtype", to_text(DataType::Float32))),
                            parse_named<OptimizerKind>("optimizer", text_or(request, "optimizer", "adamw"))};
  // A recomputing stage runs its forward again, so this takes as long as the forward.
  CostModel costs = flop_costs(report);
  if (!recompute.empty()) costs.recompute.assign(costs.stages.size(), 0);
  for (const StageId stage : recompute) costs.recompute[stage.index()] = costs.stages[stage.index()].forward;
  Json workers = Json::array();
  for (const WorkerFootprint& worker : worker_footprints(schedule, stages, recompute)) {
    workers.push_back({{"stages", stages_of(worker)},
                       {"flops", worker.flops},
                       {"state_bytes", worker.held_bytes},
                       {"peak_bytes", worker.peak_bytes}});
  }
  return {
      {"model", read_json(model_json(report))},
      {"partition", to_text(partition)},
      {"recompute", workload.recompute_attention ? to_text(choice) : to_text(stage_choice(recompute, schedule.stages))},
      {"workers", workers},
      {"model_flops", model_flops(model, workload)},
      {"costs", {{"file", costs_to_json(costs)}}}};
}

Json answer_search(const JsonValue& json, const ReportProgress& progress) {
  auto request = read_request<SearchRequest>(json, {"do"});
  request.start.most_ops = kMaxPlaygroundOps;
  request.usual_seconds = 1;
  const SearchAnswer found = answer(request, reporter(progress));
  Json answer = read_json(search_json(found.result));
  answer["schedule"] = {{"text", to_json(found.result.schedule)}};
  if (!found.notes.empty()) answer["notes"] = found.notes;
  return answer;
}

Json answer_plan(const JsonValue& request) {
  const PlanProblem problem = requested_problem(request);
  const PlanAnalysis report = analyze_plan(problem, plan_options(request), PlanRule::Simulation);
  Json json = {{"report", read_json(plan_json(report))},
               {"machine", problem.machine.name},
               {"memory_bytes", problem.memory_bytes},
               {"open", Json::array()}};
  // The page opens any row in its other tabs, with the same schedule, layers and costs.
  Predictor predictor(problem);
  for (const AnalyzedCandidate& each : report.candidates)
    json["open"].push_back(candidate_to_open(problem, predictor, each.ranked.candidate));
  if (report.with_more_memory) json["more_memory_words"] = describe(report.with_more_memory->candidate);
  return json;
}

}  // namespace chimera::playground
