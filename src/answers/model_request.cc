// answer() needs the model first, then the schedule if the partition or the user asks for one, then the partition.
// Stages that recompute and the memory of workers follow from all three.

#include "answers/model_request.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/complete_name.h"
#include "core/error.h"
#include "plan/balance.h"
#include "plan/worker_memory.h"

namespace chimera {
namespace {

constexpr std::int64_t kMany = 1'000'000'000;

Workload workload_of(const ModelRequest& request, const ModelConfig& model) {
  // The default must fit every model, also one with few positions or a narrow window.
  constexpr std::int64_t kSequence = 128;  // as in `chimera train`
  const std::int64_t usual = std::min({kSequence, model.positions, model.sliding_window.value_or(kSequence)});
  Workload workload = workload_of(request.dtype, request.optimizer, request.sequence.value_or(usual));
  workload.micro_batch_size = request.micro_batch_size;
  workload.dropout = request.dropout;
  workload.recompute_attention = request.recompute.rule == StageRule::Attention;
  return workload;
}

bool has_schedule(const ModelRequest& request) {
  return !request.schedule.name.empty() || !request.schedule.is_named();
}

/// Generates ops only if the partition or a given schedule needs them.
Schedule schedule_of(const ModelRequest& request) {
  ScheduleRequest asked = request.schedule;
  if (!asked.is_named()) return asked.make_valid();
  ShapeRequest& shape = asked.shape;
  if (shape.stages_list.empty()) shape.shape.stages = 1;
  if (shape.shape.stages < 1) throw ConfigError(fmt::format("--stages must be at least 1, not {}", shape.shape.stages));
  const PartitionRule rule = request.partition.rule;
  if (asked.name.empty() && rule != PartitionRule::Balanced && rule != PartitionRule::Auto) {
    // A cut without a schedule needs the number of stages only. Fields that would then have no effect are refused.
    if (!shape.micro_batches_list.empty())
      throw ConfigError("--micro-batches is for --schedule; give that too, or leave it out");
    for (const AxisValues& given : shape.axes)
      if (given.is_given())
        throw ConfigError(given.axis->flag() + " is for --schedule; give that too, or leave it out");
    if (request.recompute.rule != StageRule::None && request.recompute.rule != StageRule::Attention)
      throw ConfigError("--recompute is for --schedule; give that too, or leave it out");
    Schedule schedule;
    schedule.stages = shape.shape.stages;
    return schedule;
  }
  if (shape.shape.micro_batches == 0) shape.shape.micro_batches = shape.shape.stages;
  // The lists are the fields as texts. Some text must be there, or the numbers count as missing.
  shape.stages_list = shape.micro_batches_list = "given";
  if (asked.name.empty()) asked.name = kPlainSchedule;
  return asked.make();
}

}  // namespace

void visit_overrides(Door& door, ModelOverrides& overrides) {
  door.field({"layers", "number of transformer blocks; overrides the model"}, overrides.layers);
  door.field(
      {"hidden", "hidden size; overrides the model. The feed-forward size becomes 4 times this size (Llama: 3 times)"},
      overrides.hidden);
  door.field({"heads", "number of attention heads; overrides the model"}, overrides.heads);
  door.field({"key_value_heads", "number of key and value heads (grouped-query attention; Llama only)"},
             overrides.key_value_heads);
  door.field({"vocabulary", "vocabulary size; overrides the model"}, overrides.vocabulary);
  door.field({"tied", "whether head and token embedding share one matrix; overrides the model", "true|false"},
             overrides.tied);
}

ModelConfig find_preset(const std::string& name) {
  const auto presets = preset_names();
  const std::string preset = complete_name(name, presets);
  if (std::ranges::count(presets, preset) == 0) throw ConfigError(unknown_name("model", preset, presets));
  return find_model(preset);
}

void ModelRequest::visit(Door& door) {
  door.field({"model"}, model);
  door.group("Model");
  door.object("overrides", [this](Door& fields) { visit_overrides(fields, overrides); });
  door.text({"dropout", "dropout probability (default 0)", "X"}, [this](const std::string& text) {
    // Memory depends only on whether there is dropout. The door of JSON may say just that; 0.5 is any rate.
    const double rate = text == "true" ? 0.5 : text == "false" ? 0 : parse_amount("--dropout", text);
    if (rate >= 1) throw ConfigError(fmt::format("--dropout must be below 1, not {}", rate));
    dropout = rate > 0;
  });
  door.field({"micro_batch_size", "sequences per micro-batch (default 4)", "N", 1, kMany}, micro_batch_size);
  door.field(
      {"sequence", "tokens per sequence (default 128, or all positions of the model if it has fewer)", "N", 1, kMany},
      sequence);
  door.field(
      {"dtype", "type of hidden states; bfloat16: mixed precision with float32 master weights (default float32)"},
      dtype);
  door.field({"optimizer", "optimizer whose state is counted (default adamw)"}, optimizer);
  door.group("Schedule and shape");
  door.text({"partition",
             "how layers are distributed over stages: even; balanced, which shortens the step that FLOPs and bytes "
             "predict; auto: balanced where it is faster; or blocks per stage such as 8,9,9,6 (default even)",
             "CUT"},
            [this](const std::string& text) { partition = parse_partition(text); });
  door.object("schedule", [this](Door& fields) {
    fields.field({"name",
                  "schedule that places stages on workers, whose memory is then printed; some have more "
                  "than D stages (default " +
                      std::string(kPlainSchedule) + ")",
                  "NAME", 0, 0, "--schedule"},
                 schedule.name);
    fields.field({"text"}, schedule.text);
    schedule.shape.visit(fields);
  });
  door.text({"recompute",
             "activation checkpointing of stages: none, attention, full, a list such as 0,1, or auto: only the stages "
             "that need it to fit in --memory-bytes (default none)",
             "none|attention|full|auto|N,N"},
            [this](const std::string& text) { recompute = parse_stages(kRecomputeFlag, text); });
  door.field({"memory_bytes", "memory of a worker in bytes, for --recompute auto"}, memory_bytes);
}

ModelAnswer answer(const ModelRequest& request) {
  const ModelConfig model = with_overrides(request.find(request.model), request.overrides);
  // The partition may need the schedule (balanced), and the memory of workers needs both.
  const Workload workload = workload_of(request, model);
  const Schedule schedule = schedule_of(request);
  const auto partition = resolve_partition(request.partition, {.schedule = schedule,
                                                               .model = model,
                                                               .workload = workload,
                                                               .recompute = request.recompute.rule == StageRule::Full});
  ModelAnswer answer{.summary = {model, partition, workload, request.dtype, request.optimizer},
                     .recompute = request.recompute};
  if (!has_schedule(request)) return answer;
  // Bytes alone: `auto` chooses stages by memory, not by time.
  const StageModel stages = stage_bytes(model, partition, schedule, workload);
  // With `auto`, all stages if even this does not fit.
  answer.recomputing = resolve_stages(request.recompute, kRecomputeFlag, schedule.stages, [&] {
    return stages_to_recompute(schedule, stages, request.memory_bytes).value_or(all_stages(schedule.stages));
  });
  // With `auto`, the answer names the stages that were chosen. Attention sub-layers are not a choice of stages.
  if (!workload.recompute_attention) answer.recompute = stage_choice(answer.recomputing, schedule.stages);
  answer.summary.workers = worker_footprints(schedule, stages, answer.recomputing);
  return answer;
}

CostModel costs_of(const ModelAnswer& answer) {
  CostModel costs = flop_costs(answer.summary);
  // A recomputing stage runs its forward again, so this takes as long as the forward.
  if (!answer.recomputing.empty()) costs.recompute.assign(costs.stages.size(), 0);
  for (const StageId stage : answer.recomputing) costs.recompute[stage.index()] = costs.stages[stage.index()].forward;
  return costs;
}

}  // namespace chimera
