#include "model_config/footprint.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "model_config/parameters.h"

namespace chimera {
namespace {

constexpr double kTokenBytes = 8;  // of a token, target or token type: int64

double number_of(const std::vector<ParameterSpec>& specs) {
  return std::accumulate(specs.begin(), specs.end(), 0.0,
                         [](double sum, const auto& spec) { return sum + static_cast<double>(spec.count()); });
}

/// The tensors that layers make of one micro-batch, in bytes, and what becomes of them.
class Tensors {
 public:
  Tensors(const ModelConfig& config, const Workload& workload)
      : config_(config),
        gpt2_(config.family == Family::Gpt2),
        dropout_(workload.dropout),
        element_(static_cast<double>(workload.compute_bytes)),
        wide_(std::max(element_, 4.0)),
        weight_(static_cast<double>(workload.weight_bytes)),
        sequences_(static_cast<double>(workload.micro_batch_size)),
        length_(static_cast<double>(workload.sequence)),
        tokens_(sequences_ * length_),
        width_(static_cast<double>(config.hidden)),
        inner_width_(static_cast<double>(config.feed_forward)),
        vocabulary_(static_cast<double>(config.vocabulary)),
        heads_(static_cast<double>(config.heads)) {}

  [[nodiscard]] bool is_narrow() const { return element_ != weight_; }
  [[nodiscard]] double hidden() const { return element_ * tokens_ * width_; }
  [[nodiscard]] double inner() const { return element_ * tokens_ * inner_width_; }
  [[nodiscard]] double indices() const { return kTokenBytes * tokens_; }
  [[nodiscard]] double embedded() const { return weight_ * tokens_ * width_; }
  [[nodiscard]] double logits() const { return element_ * tokens_ * vocabulary_; }
  [[nodiscard]] double log_probabilities() const { return wide_ * tokens_ * vocabulary_; }
  /// Scores of every pair of tokens, `element` bytes each.
  [[nodiscard]] double pairs(double element) const { return element * sequences_ * heads_ * length_ * length_; }
  /// Mean and reciprocal standard deviation, which a layer norm keeps.
  [[nodiscard]] double statistics() const { return 2 * element_ * tokens_; }

  [[nodiscard]] double flops_of_block() const {
    return 2 * tokens_ * width_ * (4 * width_ + 2 * inner_width_) + flops_of_attention();
  }
  /// Scores, and the mean of the values that they weigh.
  [[nodiscard]] double flops_of_attention() const { return 4 * sequences_ * length_ * length_ * width_; }
  [[nodiscard]] double flops_of_head() const {
    const double logits = 2 * tokens_ * width_ * vocabulary_;
    if (gpt2_) return logits;
    return logits + 2 * tokens_ * width_ * width_ + 2 * sequences_ * width_ * (width_ + 2);
  }

  /// Whether the first linear layers read the layer's input, which they keep for W.
  [[nodiscard]] bool linear_reads_input(LayerKind kind) const { return !gpt2_ && kind != LayerKind::Embedding; }

  [[nodiscard]] double kept(LayerKind kind) const {
    switch (kind) {
      case LayerKind::Embedding: return kept_by_embedding();
      case LayerKind::Block: return kept_by_block();
      case LayerKind::Head: return kept_by_head();
    }
    return 0;
  }

  /// Inputs of linear layers and the gradients of their outputs.
  [[nodiscard]] double deferred(LayerKind kind) const {
    if (kind == LayerKind::Embedding) return 0;
    if (kind == LayerKind::Block) {
      // Inputs: of both projections of attention (BERT's first is the layer's own) and of the feed-forward sub-layer.
      const double inputs = (gpt2_ ? 3 : 2) * hidden() + inner();
      const double gradients = 5 * hidden() + inner();  // query, key, value, attention's output, the layer's
      return inputs + gradients;
    }
    if (gpt2_) return hidden() + logits();
    const double sentence = element_ * sequences_ * (2 * width_ + 2);  // pooler's gradient; tanh and scores' gradient
    return 2 * hidden() + logits() + sentence;
  }

  [[nodiscard]] double forward_working_set(const StageLayers& stage) const;
  [[nodiscard]] double backward_working_set(const StageLayers& stage, bool defers) const;
  [[nodiscard]] double weight_gradient_working_set(const StageLayers& stage) const;

 private:
  [[nodiscard]] double product(double in, double out, bool has_bias) const;
  [[nodiscard]] double attention_scratch() const;

  double kept_by_embedding() const {
    if (gpt2_) return indices() + hidden();
    return 2 * indices() + hidden() + statistics() + hidden();  // tokens and types, their sum, the norm of it
  }

  /// With dropout in single operations: probabilities, before dropout and after.
  double kept_by_attention() const {
    const double projected = 4 * hidden();                       // query, key, value, result
    if (!dropout_) return projected + wide_ * tokens_ * heads_;  // log of the sum of exponentials
    const double causal_mask = gpt2_ ? length_ * length_ : 0;
    // Key and value as views keep the tensor that GPT-2 has for all three.
    const double common = gpt2_ && !copies_projections() ? hidden() : 0;
    return projected + common + pairs(wide_) + pairs(element_) + causal_mask;
  }

  /// With dropout products want key and value as one matrix a head: copies, unless there is one sequence or head.
  [[nodiscard]] bool copies_projections() const { return dropout_ && sequences_ > 1 && heads_ > 1; }

  /// GPT-2: both norms' results, the sum between, the output. BERT: both norms' arguments and results. The
  /// feed-forward sub-layer before its activation function and after.
  double kept_by_block() const { return kept_by_attention() + 4 * hidden() + 2 * inner() + 2 * statistics(); }

  double kept_by_head() const {
    if (gpt2_) return hidden() + statistics() + log_probabilities() + indices();
    const double sentence = sequences_ * (element_ * width_ + 2 * wide_ + kTokenBytes);  // tanh, scores, targets
    return 3 * hidden() + statistics() + log_probabilities() + indices() + sentence;
  }

  /// What micro-batches hold that the stage does not keep.
  double loaded(const StageLayers& stage) const {
    if (gpt2_ && !stage.embedding && !stage.head) return 0;
    const double inputs = (gpt2_ ? 1 : 2) * indices();
    const double targets = indices() + (gpt2_ ? 0 : kTokenBytes * sequences_);
    return (stage.embedding ? 0 : inputs) + (stage.head ? 0 : targets);
  }

  const ModelConfig& config_;
  bool gpt2_;
  bool dropout_;
  double element_;  // of hidden states
  double wide_;     // of what is computed in float32 at least
  double weight_;   // of weights and gradients
  double sequences_;
  double length_;
  double tokens_;
  double width_;
  double inner_width_;
  double vocabulary_;
  double heads_;
};

/// Most at the end of the last layer, or inside it.
double Tensors::forward_working_set(const StageLayers& stage) const {
  double most = 0;
  double later = 0;  // what layers keep after the one looked at
  if (stage.head) {
    most = logits() + (element_ < wide_ ? log_probabilities() : 0);
    later += kept_by_head();
  }
  if (stage.end_layer > stage.first_layer) {
    // Variables of a block that nothing keeps: the projections that were copied, what is added to the sum.
    const double copied = !copies_projections() ? (dropout_ && !gpt2_ ? 1 : 0) : 3;
    const double added = gpt2_ && !dropout_ ? 1 : 2;
    most = std::max(most, (copied + added) * hidden() - later);
    if (dropout_) {
      const double after_attention = (gpt2_ ? 4 : 5) * hidden() + 2 * inner() + (gpt2_ ? 1 : 2) * statistics();
      const double scores = pairs(element_) + (element_ < wide_ ? pairs(wide_) : 0);
      most = std::max(most, (copied + 1) * hidden() + scores - after_attention - later);
    }
    later += static_cast<double>(stage.end_layer - stage.first_layer) * kept_by_block();
  }
  if (stage.embedding) {
    const double looked_up = (gpt2_ ? 1 : 3) * embedded() + (is_narrow() ? embedded() : 0);
    const double normed = gpt2_ ? 0 : hidden() + statistics();
    most = std::max(most, looked_up - normed - later);
  }
  return most + loaded(stage);
}

/// Of a weight gradient in a wider type: the product before it is added, converted, and what a bias sums, converted.
double Tensors::product(double in, double out, bool has_bias) const {
  if (!is_narrow()) return 0;
  return std::max((element_ + weight_) * in * out, has_bias ? weight_ * tokens_ * out : 0);
}

/// Of ATen's fused attention backward on one thread: scores and their gradients, block by block.
double Tensors::attention_scratch() const {
  const double queries = length_ >= 768 ? 256 : length_ >= 192 ? 64 : 32;
  return 2 * wide_ * std::min(queries, length_) * std::min(512.0, length_);
}

/// Of B, or of I, which keeps what W needs. Layers run from the last; `live` is what there is beyond the start.
double Tensors::backward_working_set(const StageLayers& stage, bool defers) const {
  const auto blocks = static_cast<double>(stage.end_layer - stage.first_layer);
  const double kept_input = defers && !gpt2_ ? hidden() : 0;
  double most = 0;
  double live = 0;
  if (stage.head) {
    most = std::max(2 * log_probabilities(),
                    logits() - log_probabilities() + hidden() + (defers ? 0 : product(width_, vocabulary_, !gpt2_)));
    live = (defers ? deferred(LayerKind::Head) : 0) + kept_input - kept_by_head();
  }
  if (blocks > 0) {
    const double masked = dropout_ ? hidden() : 0;
    most =
        std::max(most, live + masked + (defers ? 2 : 1) * inner() + (defers ? 0 : product(inner_width_, width_, true)));
    // Attention: gradients of query, key and value, and with dropout those of its scores.
    const double replaced_output = stage.head ? hidden() : 0;
    if (defers && !dropout_) most = std::max(most, live + 4 * hidden() - replaced_output + attention_scratch());
    if (dropout_) {
      const double scores = 2 * pairs(wide_) - pairs(element_) - (is_narrow() ? hidden() : 0);
      const double beside = defers ? 4 * hidden() - replaced_output : -2 * inner();
      most = std::max(most, live + scores + beside - (gpt2_ ? 0 : hidden()));
    }
    live += blocks * ((defers ? deferred(LayerKind::Block) + kept_input : 0) - kept_by_block());
    const bool replaced = !defers || dropout_ || !gpt2_;  // the output's gradient, which stays until the end
    if (!stage.head && replaced) live += hidden();
  }
  if (stage.embedding) {
    const double rows = std::max(vocabulary_, static_cast<double>(config_.positions));
    const double normed = gpt2_ ? 0 : hidden() + statistics();
    most = std::max(most, live - normed + (is_narrow() ? embedded() : 0) + weight_ * rows * width_);
  }
  return most;
}

/// That of the first linear layer: those after it have the room that it frees.
double Tensors::weight_gradient_working_set(const StageLayers& stage) const {
  if (stage.head) return std::max(product(width_, vocabulary_, !gpt2_), gpt2_ ? 0 : weight_ * vocabulary_);
  return std::max(product(inner_width_, width_, true), weight_ * width_);
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
}

LayerFootprint footprint_of(const ModelConfig& config, LayerKind kind, const Tensors& tensors) {
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
      layer.forward_flops = layer.input_gradient_flops = layer.weight_gradient_flops = tensors.flops_of_head();
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

/// What a stage holds between steps.
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
  return footprint_of(config, kind, Tensors(config, workload));
}

StageFootprint stage_footprint(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  check(config, workload);
  const Tensors tensors(config, workload);
  StageFootprint result;
  result.parameters = parameter_count(config, stage);
  result.memory = kept_between_steps(config, stage, workload);
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
  if (stage.head) add(LayerKind::Head, 1);
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
