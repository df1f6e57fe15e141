#include <cmath>

#include "answers/answers.h"
#include "answers/plan_answer.h"
#include "answers/requests.h"
#include "core/error.h"
#include "core/names.h"
#include "generate/registry.h"
#include "plan/named_partition.h"
#include "plan/train_flags.h"
#include "simulate/costs_json.h"

namespace chimera::playground {
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

/// A preset model on a machine, or `layers` as they were measured, whose machine says no more than what messages, sums
/// and updates take: nothing where there is none.
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

/// The values that a part of the configuration may have; none: any.
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

/// As requests name a schedule.
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

/// What opens a candidate elsewhere: its schedule and costs, the bound on its step, and the flags that train it.
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
  Json json = {{"report", Json::parse(plan_json(report))},
               {"machine", problem.machine.name},
               {"memory_bytes", problem.memory_bytes},
               {"open", Json::array()}};
  Predictor predictor(problem);
  for (const ReportedCandidate& each : report.candidates)
    json["open"].push_back(opened(problem, predictor, each.ranked.candidate));
  if (report.with_more_memory) json["more_memory_words"] = in_words(report.with_more_memory->candidate);
  return json;
}

}  // namespace chimera::playground
