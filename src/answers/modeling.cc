#include <fmt/format.h>

#include "answers/answers.h"
#include "answers/model_answer.h"
#include "answers/requests.h"
#include "core/error.h"
#include "model_config/model_flops.h"
#include "plan/named_partition.h"
#include "plan/recompute_choice.h"
#include "plan/worker_memory.h"
#include "simulate/costs_json.h"

namespace chimera::playground {
namespace {

std::set<StageId> all_stages(std::int64_t stages) {
  std::set<StageId> all;
  for (std::int64_t s = 0; s < stages; ++s) all.insert(StageId(s));
  return all;
}

/// The stages to recompute, by --recompute's words. With `auto` none where not even recomputing all helps.
std::set<StageId> recomputed(const RecomputeChoice& choice, const Schedule& schedule, const StageModel& model,
                             double memory) {
  switch (choice.rule) {
    case RecomputeRule::None: return {};
    case RecomputeRule::Full: return all_stages(schedule.stages);
    case RecomputeRule::Listed: break;
    case RecomputeRule::Auto: return stages_to_recompute(schedule, model, memory).value_or(all_stages(schedule.stages));
  }
  for (const StageId stage : choice.stages) {
    if (stage.value() >= schedule.stages)
      throw ConfigError(
          fmt::format("recompute: there is no stage {}; stages are 0 to {}", stage.value(), schedule.stages - 1));
  }
  return choice.stages;
}

/// What each worker holds of the stages, computes in a step, and has in memory at most.
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

Json modelled(const JsonValue& request) {
  const ModelConfig model = requested_model(request);
  const Workload workload = requested_workload(request);
  const Schedule schedule = valid_schedule(request.field("schedule"));
  const RecomputeChoice choice = parse_recompute(text_or(request, "recompute", "none"));
  const auto partition = named_partition(
      parse_partition(text_or(request, "partition", "even")),
      {.schedule = schedule, .model = model, .workload = workload, .recompute = choice.rule == RecomputeRule::Full});
  const StageModel stages = stage_bytes(model, partition, schedule, workload);
  const double memory = number_or(request, "memory_bytes", 0);
  const std::set<StageId> recompute = recomputed(choice, schedule, stages, memory);
  const ModelReport report{model, partition, workload,
                           parse_named<DataType>("dtype", text_or(request, "dtype", to_text(DataType::Float32))),
                           parse_named<OptimizerKind>("optimizer", text_or(request, "optimizer", "adamw"))};
  CostModel costs = flop_costs(report);
  if (!recompute.empty()) costs.recompute.assign(costs.stages.size(), 0);
  for (const StageId stage : recompute) costs.recompute[stage.index()] = costs.stages[stage.index()].forward;
  return {{"model", Json::parse(model_json(report))},
          {"partition", to_text(partition)},
          {"recompute", to_text(recompute_choice(recompute, schedule.stages))},
          {"workers", workers_json(schedule, stages, recompute)},
          {"model_flops", model_flops(model, workload)},
          {"costs", {{"file", costs_to_json(costs)}}}};
}

}  // namespace chimera::playground
