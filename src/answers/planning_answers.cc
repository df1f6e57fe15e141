// Each answer reads a request, calls the answer() of the command, and adds what only a page needs: schedules as text,
// costs as files, and data with which a candidate opens in another tab.

#include "answers/planning_answers.h"

#include "answers/door.h"
#include "answers/model_answer.h"
#include "answers/plan_request.h"
#include "answers/search_answer.h"
#include "core/json.h"
#include "core/mapped.h"
#include "generate/registry.h"
#include "plan/plan.h"
#include "plan/train_flags.h"
#include "schedule/schedule_json.h"
#include "simulate/costs_json.h"

namespace chimera::playground {
namespace {

constexpr double kSecondsBetweenReports = 0.1;

std::function<void(const SearchProgress&)> reporter(const ReportProgress& progress) {
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
          {"least_seconds", least_step_seconds(problem, candidate)},
          {"train", to_words(train_flags(problem, candidate))}};
}

}  // namespace

Json answer_model(const JsonValue& json) {
  auto request = read_request<ModelRequest>(json, {"do"});
  request.schedule.most_ops = kMaxPlaygroundOps;
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

Json answer_search(const JsonValue& json, const ReportProgress& progress) {
  auto request = read_request<SearchRequest>(json, {"do"});
  request.start.most_ops = kMaxPlaygroundOps;
  // People wait for the answer, so a search takes a second unless they ask for more.
  request.usual_seconds = 1;
  const SearchAnswer found = answer(request, reporter(progress));
  Json answer = read_json(search_json(found.result));
  answer["schedule"] = {{"text", to_json(found.result.schedule)}};
  if (!found.notes.empty()) answer["notes"] = found.notes;
  return answer;
}

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

}  // namespace chimera::playground
