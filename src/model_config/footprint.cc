#include "model_config/footprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "model_config/layer_tensors.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

double number_of(const std::vector<ParameterSpec>& specs) {
  return std::accumulate(specs.begin(), specs.end(), 0.0,
                         [](double sum, const auto& spec) { return sum + static_cast<double>(spec.count()); });
}

void check(const ModelConfig& config, const Workload& workload) {
  const auto positive = [&](const char* what, std::int64_t value) {
    if (value < 1) throw ConfigError(fmt::format("the {} must be at least 1, not {}", what, value));
  };
  positive("micro-batch size", workload.micro_batch_size);
  positive("sequence length", workload.sequence);
  positive("bytes of an element of hidden states", workload.compute_bytes);
  positive("bytes of an element of weights", workload.weight_bytes);
  if (workload.optimizer_bytes < 0) {
    throw ConfigError(fmt::format("the bytes of optimizer state must be at least 0, not {}", workload.optimizer_bytes));
  }
  if (workload.sequence > config.positions) {
    throw ConfigError(fmt::format("model '{}': a sequence of {} tokens is longer than its {} positions", config.name,
                                  workload.sequence, config.positions));
  }
  require_no_sliding(config, workload.sequence);
}

LayerFootprint footprint_of(const ModelConfig& config, LayerKind kind, const LayerTensors& tensors) {
  LayerFootprint layer;
  switch (kind) {
    case LayerKind::Embedding:
      layer.parameters = static_cast<std::int64_t>(number_of(embedding_parameters(config)));
      break;
    case LayerKind::Block:
      layer.parameters = static_cast<std::int64_t>(number_of(block_parameters(config, 0)));
      layer.forward_flops = tensors.flops_of_block();
      layer.input_gradient_flops = tensors.flops_of_block() + tensors.flops_of_attention();
      layer.weight_gradient_flops = tensors.flops_of_block() - tensors.flops_of_attention();
      break;
    case LayerKind::Head:
      layer.parameters = static_cast<std::int64_t>(number_of(head_parameters(config)));
      // F also has the gradient of what is scored.
      layer.forward_flops = 2 * tensors.flops_of_logits() + tensors.flops_of_transform();
      layer.input_gradient_flops = tensors.flops_of_transform();
      layer.weight_gradient_flops =
          (1 + tensors.share_made_again()) * tensors.flops_of_logits() + tensors.flops_of_transform();
      break;
  }
  layer.activations = tensors.kept(kind);
  layer.deferred = tensors.deferred(kind);
  return layer;
}

/// Parameters whose layers compute with narrow copies: all but the embeddings' tables.
double copied_parameters(const ModelConfig& config, const StageLayers& stage) {
  double copied = static_cast<double>(parameter_count(config, stage));
  if (!stage.embedding) return copied;
  for (const ParameterSpec& spec : embedding_parameters(config)) {
    if (spec.shape.size() == 2) copied -= static_cast<double>(spec.count());
  }
  return copied + (config.tied && stage.head ? static_cast<double>(tied_parameter(config).count()) : 0);
}

/// The bytes that a stage holds between steps.
StageMemory kept_between_steps(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  const auto parameters = static_cast<double>(parameter_count(config, stage));
  const auto weight_bytes = static_cast<double>(workload.weight_bytes);
  const auto compute_bytes = static_cast<double>(workload.compute_bytes);
  // Both uses of a tied matrix have their own sum.
  const bool two_uses = config.tied && stage.embedding && stage.head;
  const double second_sum = two_uses ? static_cast<double>(tied_parameter(config).count()) : 0;
  StageMemory memory;
  memory.weights = weight_bytes * parameters;
  if (compute_bytes != weight_bytes) memory.weights += compute_bytes * copied_parameters(config, stage);
  memory.gradients = weight_bytes * (parameters + second_sum);
  memory.optimizer = static_cast<double>(workload.optimizer_bytes) * parameters;
  return memory;
}

}  // namespace

Workload workload_of(DataType dtype, OptimizerKind optimizer) {
  Workload workload;
  workload.compute_bytes = bytes_of(dtype);
  workload.weight_bytes = bytes_of(master_type(dtype));
  workload.optimizer_bytes = moments_of(optimizer) * workload.weight_bytes;
  return workload;
}

LayerFootprint layer_footprint(const ModelConfig& config, LayerKind kind, const Workload& workload) {
  check(config, workload);
  return footprint_of(config, kind, LayerTensors(config, workload));
}

StageFootprint stage_footprint(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  check(config, workload);
  const LayerTensors tensors(config, workload);
  StageFootprint result;
  result.parameters = parameter_count(config, stage);
  result.memory = kept_between_steps(config, stage, workload);
  if (stage.end_layer > stage.first_layer) result.memory.weights += tensors.rotary_table();
  result.memory.boundary = stage.embedding ? 0 : tensors.hidden();
  result.memory.activations = result.memory.boundary;
  double deferred = 0;
  const auto add = [&](LayerKind kind, double copies) {
    const LayerFootprint layer = footprint_of(config, kind, tensors);
    result.forward_flops += copies * layer.forward_flops;
    result.input_gradient_flops += copies * layer.input_gradient_flops;
    result.weight_gradient_flops += copies * layer.weight_gradient_flops;
    result.memory.activations += copies * layer.activations;
    deferred += copies * (layer.deferred + (tensors.linear_reads_input(kind) ? tensors.hidden() : 0));
  };
  if (stage.embedding) add(LayerKind::Embedding, 1);
  add(LayerKind::Block, static_cast<double>(stage.end_layer - stage.first_layer));
  if (stage.end_layer > stage.first_layer) result.memory.activations += tensors.kept_document_mask();
  if (stage.head) {
    add(LayerKind::Head, 1);
    result.memory.activations -= tensors.dropped_output();
  }
  result.memory.deferred = deferred;
  result.forward_working_set = tensors.forward_working_set(stage);
  result.backward_working_set = tensors.backward_working_set(stage, /*defers=*/false);
  result.input_gradient_working_set = tensors.backward_working_set(stage, /*defers=*/true);
  result.weight_gradient_working_set = tensors.weight_gradient_working_set(stage);
  return result;
}

double StageFootprint::working_set(OpKind kind) const {
  switch (kind) {
    case OpKind::Forward: return forward_working_set;
    case OpKind::Backward: return backward_working_set;
    case OpKind::BackwardInput: return input_gradient_working_set;
    case OpKind::BackwardWeight: return weight_gradient_working_set;
  }
  return 0;
}

}  // namespace chimera
