#include "core/error.h"
#include "core/names.h"
#include "generate/registry.h"
#include "plan/named_partition.h"
#include "plan/train_flags.h"
#include "playground/answers.h"
#include "playground/requests.h"
#include "report/plan_report.h"
#include "simulate/costs_json.h"

namespace chimera::playground {
namespace {

PlanProblem requested_problem(const JsonValue& request) {
  PlanProblem problem;
  problem.model = requested_model(request);
  problem.machine = machine_from_json(request.text("machine"), "machine");
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

PlanOptions requested_options(const JsonValue& request) {
  PlanOptions options;
  if (request.has("schedules")) {
    for (const JsonValue& name : request.field("schedules").list()) options.schedules.push_back(name.text());
  }
  options.partition = parse_partition(text_or(request, "partition", "balanced"));
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
  return {{"words", in_words(candidate)},
          {"schedule", schedule_json(candidate)},
          {"costs", {{"file", costs_to_json(predictor.prepare(candidate).model.costs)}}},
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
