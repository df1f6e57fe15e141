// Lays out what model_config/footprint.h computes: tables and bars for people (model_text()), exact numbers for
// programs (model_json()), and costs for the simulator (flop_costs()). Only worker_footprints() computes something: it
// adds up the stages of a worker, and takes the peak from the order of its ops.

#include "answers/model_answer.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/counted.h"
#include "core/json.h"
#include "model_config/config.h"
#include "model_config/parameters.h"
#include "plan/worker_memory.h"
#include "render/bars.h"
#include "render/panel.h"

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

constexpr LayerKind kKinds[] = {LayerKind::Embedding, LayerKind::Block, LayerKind::Head};

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
  return std::max(stage.forward_working_set, stage.backward_working_set);
}

std::string blocks_of(const StageLayers& stage) {
  if (stage.first_layer == stage.end_layer) return "no block";
  return fmt::format("blocks {} to {}", stage.first_layer, stage.end_layer - 1);
}

std::string parts(const StageLayers& stage) {
  return fmt::format("{}{}{}", stage.embedding ? "embedding, " : "", blocks_of(stage), stage.head ? ", head" : "");
}

std::vector<StageFootprint> footprints(const ModelSummary& report) {
  std::vector<StageFootprint> result;
  for (const StageLayers& stage : report.partition) {
    result.push_back(stage_footprint(report.model, stage, report.workload));
  }
  return result;
}

std::string workload_words(const ModelSummary& report) {
  return fmt::format("one micro-batch of {} x {} tokens, {}, {}{}", report.workload.micro_batch_size,
                     report.workload.sequence, to_text(report.dtype), to_text(report.optimizer),
                     report.workload.dropout ? ", dropout" : "");
}

BarChart chart_of(const ModelSummary& report, const std::vector<StageFootprint>& stages) {
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

std::string layer_table(const ModelSummary& report) {
  std::string text = fmt::format("{:<12} {:>14} {:>12} {:>12} {:>11} {:>10}\n", "layer", "parameters", "F", "I + W",
                                 "activations", "I to W");
  for (const LayerKind kind : kKinds) {
    const LayerFootprint layer = layer_footprint(report.model, kind, report.workload);
    // The row has the figures of a single block.
    const bool many = kind == LayerKind::Block && report.model.layers > 1;
    text += fmt::format("{:<12} {:>14} {:>12} {:>12} {:>11} {:>10}\n",
                        many ? fmt::format("block x {}", report.model.layers) : to_text(kind), layer.parameters,
                        flops_text(layer.forward_flops), flops_text(backward_flops(layer)),
                        bytes_text(layer.activations), bytes_text(layer.deferred));
  }
  return text;
}

std::string stage_table(const ModelSummary& report, const std::vector<StageFootprint>& stages) {
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
  for (const OpKind kind : {OpKind::Forward, OpKind::Backward, OpKind::BackwardInput, OpKind::BackwardWeight}) {
    json["working_set_bytes"][std::string(1, letter(kind))] = stage.working_set(kind);
  }
  return json;
}

std::string worker_table(const ModelSummary& report) {
  if (report.workers.empty()) return "";
  std::size_t width = 6;
  for (const WorkerFootprint& worker : report.workers)
    width = std::max(width, fmt::format("{}", fmt::join(stages_of(worker), ", ")).size());
  std::string text = fmt::format("\n{:>6}  {:<{}} {:>10} {:>10}\n", "worker", "stages", width, "held", "peak");
  for (std::size_t w = 0; w < report.workers.size(); ++w) {
    const WorkerFootprint& worker = report.workers[w];
    text += fmt::format("{:>6}  {:<{}} {:>10} {:>10}\n", w, fmt::format("{}", fmt::join(stages_of(worker), ", ")),
                        width, bytes_text(worker.held_bytes), bytes_text(worker.peak_bytes));
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

}  // namespace

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

std::vector<std::int64_t> stages_of(const WorkerFootprint& worker) {
  std::vector<std::int64_t> stages;
  for (const StageId stage : worker.stages) stages.push_back(stage.value());
  return stages;
}

std::string model_text(const ModelSummary& report) {
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

std::string model_json(const ModelSummary& report) {
  const ModelConfig& model = report.model;
  Json json = {{"name", model.name}, {"parameters", parameter_count(model)}, {"layers", model.layers}};
  json.update(layer_sizes_json(model));
  json.update({{"micro_batch_size", report.workload.micro_batch_size},
               {"sequence", report.workload.sequence},
               {"dtype", to_text(report.dtype)},
               {"optimizer", to_text(report.optimizer)},
               {"dropout", report.workload.dropout}});
  for (const LayerKind kind : kKinds) {
    const LayerFootprint layer = layer_footprint(model, kind, report.workload);
    Json& entry = json["layer_kinds"][to_text(kind)] = {{"parameters", layer.parameters}};
    entry.update(work_json(layer));
    entry.update({{"activations_bytes", layer.activations}, {"deferred_bytes", layer.deferred}});
  }
  json["stages"] = Json::array();
  for (const StageLayers& stage : report.partition) {
    json["stages"].push_back(stage_json(stage, stage_footprint(model, stage, report.workload)));
  }
  for (const WorkerFootprint& worker : report.workers) {
    json["workers"].push_back(
        {{"stages", stages_of(worker)}, {"held_bytes", worker.held_bytes}, {"peak_bytes", worker.peak_bytes}});
  }
  return json_report(json);
}

std::string model_svg(const ModelSummary& report) { return to_svg(chart_of(report, footprints(report))); }

CostModel flop_costs(const ModelSummary& report) {
  CostModel costs;
  for (const StageLayers& layers : report.partition) {
    const StageFootprint stage = stage_footprint(report.model, layers, report.workload);
    const double input = stage.input_gradient_flops / 1e9;
    const double weight = stage.weight_gradient_flops / 1e9;
    // FLOPs stand for time: only ratios of times matter to a schedule.
    costs.stages.push_back({stage.forward_flops / 1e9, input + weight, input, weight});
    costs.memory.push_back(stage.memory);
  }
  return costs;
}

}  // namespace chimera
