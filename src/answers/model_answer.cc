#include "answers/model_answer.h"

#include <fmt/ranges.h>
#include <algorithm>

#include "core/complete_name.h"
#include "core/counted.h"
#include "core/json.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "model_config/config.h"
#include "model_config/parameters.h"
#include "plan/balance.h"
#include "plan/worker_memory.h"
#include "render/bars.h"
#include "render/panel.h"

// Lays out what model_config/footprint.h computes: tables and bars for people (model_text()), exact numbers for
// programs (model_json()), and costs for the simulator (costs_of()). Only worker_footprints() computes something: it
// adds up the stages of a worker, and takes the peak from the order of its ops.
//
// answer() needs the model first, then the schedule if the partition or the user asks for one, then the partition.
// Stages that recompute and the memory of workers follow from all three.

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

std::string flops_text(double flops) {
  constexpr const char* kUnits[] = {"FLOP", "kFLOP", "MFLOP", "GFLOP", "TFLOP", "PFLOP", "EFLOP"};
  std::size_t unit = 0;
  for (; flops >= 1000 && unit + 1 < std::size(kUnits); ++unit) flops /= 1000;
  return fmt::format("{:.4g} {}", flops, kUnits[unit]);
}

double backward_flops(const auto& footprint) {
  return footprint.input_gradient_flops + footprint.weight_gradient_flops;
}

double working_set(const StageFootprint& stage) {
  return std::max(stage.working_set(OpKind::Forward), stage.working_set(OpKind::Backward));
}

std::string blocks_of(const StageLayers& stage) {
  if (stage.first_layer == stage.end_layer) return "no block";
  return fmt::format("blocks {} to {}", stage.first_layer, stage.end_layer - 1);
}

std::string parts(const StageLayers& stage) {
  return fmt::format("{}{}{}", stage.embedding ? "embedding, " : "", blocks_of(stage), stage.head ? ", head" : "");
}

std::vector<StageFootprint> footprints(const ModelAnswer& report) {
  return mapped(report.partition,
                [&](const StageLayers& stage) { return stage_footprint(report.model, stage, report.workload); });
}

std::string workload_words(const ModelAnswer& report) {
  return fmt::format("one micro-batch of {} x {} tokens, {}, {}{}", report.workload.micro_batch_size,
                     report.workload.sequence, to_text(report.dtype), to_text(report.optimizer),
                     report.workload.dropout ? ", dropout" : "");
}

BarChart chart_of(const ModelAnswer& report, const std::vector<StageFootprint>& stages) {
  // The colors of ops are light enough for black text, and readers know them from other pictures.
  BarChart chart{fmt::format("{}: memory of stages, {}", report.model.name, workload_words(report)),
                 {{"weights", color_of(OpKind::Forward), 'w'},
                  {"gradients", color_of(OpKind::Backward), 'g'},
                  {"optimizer", kUpdateColor, 'o'},
                  {"activations", color_of(OpKind::BackwardWeight), 'a'},
                  {"working set", kAllReduceColor, 't'}},
                 {}};
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageMemory& memory = stages[s].memory;
    chart.bars.push_back(
        {fmt::format("stage {}", s),
         {memory.weights, memory.gradients, memory.optimizer, memory.activations, working_set(stages[s])}});
  }
  return chart;
}

std::string layer_table(const ModelAnswer& report) {
  std::string text = fmt::format("{:<12} {:>14} {:>12} {:>12} {:>11} {:>10}\n", "layer", "parameters", "F", "I + W",
                                 "activations", "I to W");
  for (const auto& [kind, name] : kNames<LayerKind>) {
    const LayerFootprint layer =
        layer_footprint(report.model, kind, report.workload, report.partition.front().levels.level_of(0));
    // The row has the figures of a single block.
    const bool many = kind == LayerKind::Block && report.model.layers > 1;
    text += fmt::format("{:<12} {:>14} {:>12} {:>12} {:>11} {:>10}\n",
                        many ? fmt::format("block x {}", report.model.layers) : std::string(name), layer.parameters,
                        flops_text(layer.forward_flops), flops_text(backward_flops(layer)),
                        bytes_text(layer.activations), bytes_text(layer.deferred));
  }
  return text;
}

std::string stage_table(const ModelAnswer& report, const std::vector<StageFootprint>& stages) {
  std::size_t width = 6;
  for (const StageLayers& stage : report.partition) width = std::max(width, parts(stage).size());
  std::string text = fmt::format("{:>5}  {:<{}} {:>14} {:>12} {:>12} {:>10} {:>10} {:>10} {:>11} {:>9} {:>10} {:>11}\n",
                                 "stage", "layers", width, "parameters", "F", "I + W", "weights", "gradients",
                                 "optimizer", "activations", "boundary", "I to W", "working set");
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const StageFootprint& stage = stages[s];
    const StageMemory& memory = stage.memory;
    text += fmt::format("{:>5}  {:<{}} {:>14} {:>12} {:>12} {:>10} {:>10} {:>10} {:>11} {:>9} {:>10} {:>11}\n", s,
                        parts(report.partition[s]), width, stage.parameters, flops_text(stage.forward_flops),
                        flops_text(backward_flops(stage)), bytes_text(memory.weights), bytes_text(memory.gradients),
                        bytes_text(memory.optimizer), bytes_text(memory.activations), bytes_text(memory.boundary),
                        bytes_text(memory.deferred.value_or(memory.activations)), bytes_text(working_set(stage)));
  }
  return text;
}

Json work_json(const auto& footprint) {
  return {{"forward_flops", footprint.forward_flops},
          {"input_gradient_flops", footprint.input_gradient_flops},
          {"weight_gradient_flops", footprint.weight_gradient_flops}};
}

Json stage_json(const StageLayers& layers, const StageFootprint& stage) {
  Json json = {{"parameters", stage.parameters},
               {"layers", layers.blocks()},
               {"first_layer", layers.first_layer},
               {"embedding", layers.embedding},
               {"head", layers.head}};
  json.update(work_json(stage));
  json.update({{"weights_bytes", stage.memory.weights},
               {"gradients_bytes", stage.memory.gradients},
               {"optimizer_bytes", stage.memory.optimizer},
               {"activations_bytes", stage.memory.activations},
               {"boundary_bytes", stage.memory.boundary},
               {"deferred_bytes", stage.memory.deferred.value_or(stage.memory.activations)}});
  for (const OpKind kind : {OpKind::Forward, OpKind::Backward, OpKind::BackwardInput, OpKind::BackwardWeight})
    json["working_set_bytes"][std::string(1, letter(kind))] = stage.working_set(kind);
  return json;
}

std::string worker_table(const ModelAnswer& report) {
  if (report.workers.empty()) return "";
  const auto stages = mapped(report.workers, [](const WorkerFootprint& worker) {
    return fmt::format("{}", fmt::join(numbers_of_ids(worker.stages), ", "));
  });
  const std::size_t width = std::max<std::size_t>(6, std::ranges::max(mapped(stages, &std::string::size)));
  std::string text = fmt::format("\n{:>6}  {:<{}} {:>10} {:>10}\n", "worker", "stages", width, "held", "peak");
  for (std::size_t w = 0; w < report.workers.size(); ++w) {
    const WorkerFootprint& worker = report.workers[w];
    text += fmt::format("{:>6}  {:<{}} {:>10} {:>10}\n", w, stages[w], width, bytes_text(worker.held_bytes),
                        bytes_text(worker.peak_bytes));
  }
  return text +
         "held: weights, gradients and optimizer state; peak: with activations of all micro-batches in flight, "
         "messages and the working set\n";
}

std::string head_words(const ModelConfig& model) {
  std::string words = counted(model.heads, "head");
  // Only this family has fewer heads of keys and values, and a size of heads that is not the width divided by their
  // number.
  if (model.family != Family::Llama) return words;
  return words + fmt::format(" of {} ({} of keys and values)", head_size_of(model), key_value_heads_of(model));
}

constexpr std::int64_t kMany = 1'000'000'000;

Workload workload_of(const ModelRequest& request, const ModelConfig& model) {
  // The default must fit every model, also one with few positions or a narrow window.
  constexpr std::int64_t kSequence = 128;  // as in `chimera train`
  const std::int64_t usual = std::min({kSequence, model.positions, model.sliding_window.value_or(kSequence)});
  Workload workload = workload_of(request.dtype, request.optimizer, request.sequence.value_or(usual));
  workload.micro_batch_size = request.micro_batch_size;
  workload.dropout = request.dropout;
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
  if (shape.shape.stages < 1) reject("--stages must be at least 1, not {}", shape.shape.stages);
  const PartitionRule rule = request.partition.rule;
  if (asked.name.empty() && rule != PartitionRule::Balanced && rule != PartitionRule::Auto) {
    // A cut without a schedule needs the number of stages only. Fields that would then have no effect are refused.
    if (!shape.micro_batches_list.empty()) reject("--micro-batches is for --schedule; give that too, or leave it out");
    for (const AxisValues& given : shape.axes)
      if (given.is_given())
        throw ConfigError(given.axis->flag() + " is for --schedule; give that too, or leave it out");
    if (request.recompute.rule != StageRule::None && !request.recompute.counts_blocks())
      reject("--recompute is for --schedule; give that too, or leave it out");
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

/// Returns [worker]: its footprint. Stages in `recompute` run their forward again before the backward.
std::vector<WorkerFootprint> worker_footprints(const Schedule& schedule, const StageModel& model,
                                               const std::set<StageId>& recompute) {
  // What a worker holds at once depends on the order of its ops and not on their times.
  const std::vector<double> peaks = peaks_by_order(schedule, model, recompute);
  std::vector<WorkerFootprint> workers(schedule.workers.size());
  const auto holders = stage_groups(schedule.placement);
  for (std::size_t s = 0; s < holders.size(); ++s) {
    for (const WorkerId id : holders[s]) {
      WorkerFootprint& worker = workers[id.index()];
      const StageMemory& memory = model.footprints[s].memory;
      // A worker holds the weights of a stage once, even for several replicas.
      worker.stages.emplace_back(static_cast<std::int64_t>(s));
      worker.held_bytes += memory.weights + memory.gradients + memory.optimizer;
    }
  }
  for (std::size_t w = 0; w < workers.size(); ++w) {
    workers[w].peak_bytes = peaks[w];
    for (const Op& op : schedule.workers[w]) {
      const StageFootprint& stage = model.footprints[op.stage.index()];
      // The first op of a backward recomputes; W finds the activations in memory.
      const bool recomputes = gives_input_gradient(op.kind) && recompute.contains(op.stage);
      if (op.kind == OpKind::Forward || recomputes) workers[w].flops += stage.forward_flops;
      if (gives_input_gradient(op.kind)) workers[w].flops += stage.input_gradient_flops;
      if (gives_weight_gradient(op.kind)) workers[w].flops += stage.weight_gradient_flops;
    }
  }
  return workers;
}

}  // namespace

std::string model_text(const ModelAnswer& report) {
  const ModelConfig& model = report.model;
  // The order is: model, layers, stages, a picture of the stages, workers.
  const auto stages = footprints(report);
  return fmt::format(
             "{}: {} parameters\n  {}, {}, {} wide, {}, feed-forward {}, vocabulary {}, {} positions, "
             "head {}\n  for {}\n\n",
             model.name, parameter_count(model), to_text(model.family), counted(model.layers, "layer"), model.hidden,
             head_words(model), model.feed_forward, model.vocabulary, model.positions, model.tied ? "tied" : "untied",
             workload_words(report)) +
         layer_table(report) +
         // Otherwise the head's backward looks like half of a product too few.
         "F of the head also computes the gradient of its input, so that no logits are kept.\n\n" +
         stage_table(report, stages) + "\n" + to_text(chart_of(report, stages)) + worker_table(report);
}

std::string model_json(const ModelAnswer& report) {
  const ModelConfig& model = report.model;
  Json json = {{"name", model.name}, {"parameters", parameter_count(model)}, {"layers", model.layers}};
  json.update(layer_sizes_json(model));
  json.update({{"micro_batch_size", report.workload.micro_batch_size},
               {"sequence", report.workload.sequence},
               {"dtype", to_text(report.dtype)},
               {"optimizer", to_text(report.optimizer)},
               {"dropout", report.workload.dropout}});
  for (const auto& [kind, name] : kNames<LayerKind>) {
    const LayerFootprint layer =
        layer_footprint(model, kind, report.workload, report.partition.front().levels.level_of(0));
    Json& entry = json["layer_kinds"][std::string(name)] = {{"parameters", layer.parameters}};
    entry.update(work_json(layer));
    entry.update({{"activations_bytes", layer.activations}, {"deferred_bytes", layer.deferred}});
  }
  json["stages"] = Json::array();
  const auto stages = footprints(report);
  for (std::size_t s = 0; s < stages.size(); ++s) json["stages"].push_back(stage_json(report.partition[s], stages[s]));
  for (const WorkerFootprint& worker : report.workers) {
    json["workers"].push_back({{"stages", numbers_of_ids(worker.stages)},
                               {"held_bytes", worker.held_bytes},
                               {"peak_bytes", worker.peak_bytes}});
  }
  return json_report(json);
}

std::string model_svg(const ModelAnswer& report) { return to_svg(chart_of(report, footprints(report))); }

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
    if (rate >= 1) reject("--dropout must be below 1, not {}", rate);
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
             "activation checkpointing: none, full, stages such as 0,1, or auto: as little as --memory-bytes requires; "
             "cheap or attention of all blocks; blocks per stage: cheap:4+full:3,2 (default none)",
             "none|cheap|attention|full|auto|N,N|LEVEL:N,N"},
            [this](const std::string& text) { recompute = parse_stages(kRecomputeFlag, text); });
  door.field({"memory_bytes", "memory of a worker in bytes, for --recompute auto"}, memory_bytes);
}

ModelAnswer answer(const ModelRequest& request) {
  const ModelConfig model = with_overrides(request.find(request.model), request.overrides);
  // The partition may need the schedule (balanced), and the memory of workers needs both.
  const Workload workload = workload_of(request, model);
  const Schedule schedule = schedule_of(request);
  auto partition = resolve_partition(request.partition, {.schedule = schedule,
                                                         .model = model,
                                                         .workload = workload,
                                                         .recompute = request.recompute.rule == StageRule::Full});
  set_levels(partition, request.recompute);
  ModelAnswer answer{model, partition, workload, request.dtype, request.optimizer, {}, request.recompute};
  if (!has_schedule(request)) return answer;
  // Bytes alone: `auto` chooses stages by memory, not by time.
  const auto model_of = [&](const std::vector<StageLayers>& cut) {
    return stage_bytes(model, cut, schedule, workload);
  };
  // With `auto`, all stages if even this does not fit. The answer names what was chosen.
  answer.recomputing = resolve_stages(request.recompute, kRecomputeFlag, schedule.stages, [&] {
    const auto blocks = blocks_to_recompute(schedule, partition, request.memory_bytes, model_of);
    if (blocks) answer.recompute = *blocks;
    if (blocks) return std::set<StageId>();
    return stages_to_recompute(schedule, model_of(partition), request.memory_bytes)
        .value_or(all_stages(schedule.stages));
  });
  if (!answer.recompute.counts_blocks()) answer.recompute = stage_choice(answer.recomputing, schedule.stages);
  set_levels(answer.partition, answer.recompute);
  const StageModel stages = model_of(answer.partition);
  answer.workers = worker_footprints(schedule, stages, answer.recomputing);
  return answer;
}

CostModel costs_of(const ModelAnswer& answer) {
  CostModel costs;
  for (const StageFootprint& stage : footprints(answer)) {
    const double input = stage.input_gradient_flops / 1e9;
    const double weight = stage.weight_gradient_flops / 1e9;
    // FLOPs stand for time: only ratios of times matter to a schedule.
    costs.stages.push_back({stage.forward_flops / 1e9, input + weight, input, weight});
    costs.memory.push_back(stage.memory);
  }
  // A recomputing stage runs its forward again, so this takes as long as the forward.
  if (!answer.recomputing.empty()) costs.recompute.assign(costs.stages.size(), 0);
  for (const StageId stage : answer.recomputing) costs.recompute[stage.index()] = costs.stages[stage.index()].forward;
  return costs;
}

}  // namespace chimera
