#include "model_config/footprint.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/error.h"
#include "core/masked_tokens.h"
#include "model_config/config.h"
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
  positive("number of slices", workload.slices);
  positive("bytes of an element of hidden states", workload.compute_bytes);
  positive("bytes of an element of weights", workload.weight_bytes);
  if (workload.optimizer_bytes < 0) {
    throw ConfigError(fmt::format("the bytes of optimizer state must be at least 0, not {}", workload.optimizer_bytes));
  }
  if (workload.slices > workload.sequence) {
    throw ConfigError(
        fmt::format("a sequence of {} tokens has no {} slices; use fewer", workload.sequence, workload.slices));
  }
  if (workload.sequence > config.positions) {
    throw ConfigError(fmt::format("model '{}': a sequence of {} tokens is longer than its {} positions", config.name,
                                  workload.sequence, config.positions));
  }
  require_within_window(config, workload.sequence);
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
      layer.input_gradient_flops =
          tensors.flops_of_block() + tensors.flops_of_attention() + tensors.flops_of_recomputation();
      layer.weight_gradient_flops = tensors.flops_of_block() - tensors.flops_of_attention();
      break;
    case LayerKind::Head:
      layer.parameters = static_cast<std::int64_t>(number_of(head_parameters(config)));
      // The forward also computes the gradient of the hidden states.
      layer.forward_flops = 2 * tensors.flops_of_logits() + tensors.flops_of_transform();
      layer.input_gradient_flops = tensors.flops_of_transform();
      layer.weight_gradient_flops =
          (1 + tensors.recomputed_fraction()) * tensors.flops_of_logits() + tensors.flops_of_transform();
      break;
  }
  layer.activations = tensors.kept(kind);
  layer.deferred = tensors.deferred(kind);
  return layer;
}

/// Parameters with low-precision copies: all but embedding tables.
double copied_parameters(const ModelConfig& config, const StageLayers& stage) {
  double copied = static_cast<double>(parameter_count(config, stage));
  if (!stage.embedding) return copied;
  for (const ParameterSpec& spec : embedding_parameters(config)) {
    if (spec.shape.size() == 2) copied -= static_cast<double>(spec.count());
  }
  return copied + (config.tied && stage.head ? static_cast<double>(tied_parameter(config).count()) : 0);
}

StageMemory kept_between_steps(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  const auto parameters = static_cast<double>(parameter_count(config, stage));
  const auto weight_bytes = static_cast<double>(workload.weight_bytes);
  const auto compute_bytes = static_cast<double>(workload.compute_bytes);
  const bool two_uses = config.tied && stage.embedding && stage.head;
  const double second_sum = two_uses ? static_cast<double>(tied_parameter(config).count()) : 0;
  StageMemory memory;
  memory.weights = weight_bytes * parameters;
  if (compute_bytes != weight_bytes) memory.weights += compute_bytes * copied_parameters(config, stage);
  memory.gradients = weight_bytes * (parameters + second_sum);
  memory.optimizer = static_cast<double>(workload.optimizer_bytes) * parameters;
  return memory;
}

Workload longest_slice(const ModelConfig& config, const Workload& workload) {
  const auto bounds = balanced_slices(workload.slices, workload.sequence, attention_share(config, workload.sequence));
  Workload longest = workload;
  longest.slices = 1;
  longest.sequence = 0;
  for (std::size_t j = 1; j < bounds.size(); ++j)
    longest.sequence = std::max(longest.sequence, bounds[j] - bounds[j - 1]);
  return longest;
}

/// Changes the footprint of whole micro-batches to that of slices.
void cut_into_slices(const ModelConfig& config, const StageLayers& stage, const Workload& workload,
                     StageFootprint& footprint) {
  const Workload longest = longest_slice(config, workload);
  const LayerTensors all(config, workload);
  const auto blocks = static_cast<double>(stage.end_layer - stage.first_layer);
  const auto element = static_cast<double>(workload.compute_bytes);
  const double keys_and_values = 2 * all.keys();
  footprint.memory.keys_and_values = blocks * keys_and_values * (1 + std::max(element, 4.0) / element);
  if (stage.head) {
    const double logits = static_cast<double>(workload.slices) * LayerTensors(config, longest).kept_logits();
    const double more = std::max(0.0, logits - all.kept_logits());
    footprint.memory.activations += more;
    footprint.memory.deferred = footprint.memory.deferred.value_or(0) + more;
  }
  if (workload.dropout || workload.split_documents) return;
  const StageFootprint slice = stage_footprint(config, stage, longest);
  // Gradients of keys and values of all tokens so far, in two parts and joined
  const double joined = blocks > 0 ? 2 * keys_and_values : 0;
  footprint.forward_working_set = slice.forward_working_set;
  footprint.backward_working_set = slice.backward_working_set + joined;
  footprint.input_gradient_working_set = slice.input_gradient_working_set + joined;
  footprint.weight_gradient_working_set = slice.weight_gradient_working_set;
}

std::int64_t num_targets(const ModelConfig& config, const Workload& workload) {
  return workload.micro_batch_size * (is_causal(config.family) ? workload.sequence : masked_count(workload.sequence));
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

double attention_share(const ModelConfig& config, std::int64_t sequence) {
  const Workload workload{.micro_batch_size = 1, .sequence = sequence};
  const auto flops = [&](LayerKind kind) {
    const LayerFootprint layer = layer_footprint(config, kind, workload);
    return layer.forward_flops + layer.input_gradient_flops + layer.weight_gradient_flops;
  };
  const auto blocks = static_cast<double>(config.layers);
  // once in the forward, twice in the input gradient
  const double attention = 3 * LayerTensors(config, workload).flops_of_attention();
  const double others = flops(LayerKind::Embedding) + flops(LayerKind::Head);
  return blocks * attention / (blocks * flops(LayerKind::Block) + others);
}

std::vector<std::int64_t> balanced_slices(std::int64_t slices, std::int64_t sequence, double attention) {
  constexpr std::int64_t kTile = 16;
  const std::int64_t unit = sequence % kTile == 0 && sequence >= slices * kTile ? kTile : 1;
  const std::int64_t units = sequence / unit;
  std::vector<std::int64_t> bounds;
  for (const double fraction : balanced_bounds(slices, attention)) {
    const std::int64_t j = std::ssize(bounds);
    const std::int64_t least = bounds.empty() ? 0 : bounds.back() / unit + 1;
    const std::int64_t most = units - (slices - j);
    const auto nearest = static_cast<std::int64_t>(std::llround(fraction * static_cast<double>(units)));
    bounds.push_back(unit * (j == 0 ? 0 : std::clamp(nearest, least, most)));
  }
  return bounds;
}

std::vector<double> as_fractions(const std::vector<std::int64_t>& bounds) {
  std::vector<double> fractions;
  for (const std::int64_t bound : bounds)
    fractions.push_back(static_cast<double>(bound) / static_cast<double>(bounds.back()));
  return fractions;
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
    result.memory.activations -= tensors.freed_output();
  }
  result.memory.deferred = deferred;
  const double end = stage.head ? tensors.kept(LayerKind::Head) : tensors.hidden();
  result.stays = std::min(result.memory.boundary + end, result.memory.activations);
  result.forward_working_set = tensors.forward_working_set(stage);
  result.backward_working_set = tensors.backward_working_set(stage, /*defers=*/false);
  result.input_gradient_working_set = tensors.backward_working_set(stage, /*defers=*/true);
  result.weight_gradient_working_set = tensors.weight_gradient_working_set(stage);
  if (workload.slices > 1) cut_into_slices(config, stage, workload, result);
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

LayerTensors::LayerTensors(const ModelConfig& config, const Workload& workload)
    : causal_(is_causal(config.family)),
      llama_(config.family == Family::Llama),
      has_query_key_norm_(config.query_key_norm),
      has_feed_forward_bias_(!llama_ || config.feed_forward_bias),
      dropout_(workload.dropout),
      split_documents_(workload.split_documents && causal_),
      recompute_attention_(workload.recompute_attention),
      element_(static_cast<double>(workload.compute_bytes)),
      wide_(std::max(element_, 4.0)),
      weight_(static_cast<double>(workload.weight_bytes)),
      sequences_(static_cast<double>(workload.micro_batch_size)),
      length_(static_cast<double>(workload.sequence)),
      tokens_(sequences_ * length_),
      chunks_(chunks_of(num_targets(config, workload), config.vocabulary, workload.logits_of_chunk)),
      targets_(static_cast<double>(chunks_.tokens)),
      width_(static_cast<double>(config.hidden)),
      inner_width_(static_cast<double>(config.feed_forward)),
      vocabulary_(static_cast<double>(config.vocabulary)),
      heads_(static_cast<double>(config.heads)),
      key_heads_(static_cast<double>(key_value_heads_of(config))),
      head_size_(static_cast<double>(head_size_of(config))),
      query_width_(heads_ * head_size_),
      key_width_(key_heads_ * head_size_) {}

double LayerTensors::kept(LayerKind kind) const {
  switch (kind) {
    case LayerKind::Embedding: return kept_by_embedding();
    case LayerKind::Block: return kept_by_block();
    case LayerKind::Head: return kept_by_head();
  }
  return 0;
}

double LayerTensors::deferred(LayerKind kind) const {
  if (kind == LayerKind::Embedding) return embedded() + (causal_ ? 1 : 2) * indices();
  if (kind == LayerKind::Block) return deferred_by_block();
  const double logits = scored() + kTokenBytes * targets_ + kept_logits();
  if (causal_) return logits;
  // Transform and pooler: input and output gradient; sentence scores: input and gradient.
  return 2 * scored() + logits + element_ * sequences_ * (3 * width_ + 2);
}

double LayerTensors::deferred_by_block() const {
  // Inputs of both attention projections (BERT: only of the second) and of the feed-forward layers.
  const double inputs = (causal_ ? 2 : 1) * hidden() + queries() + inner();
  // Gradients of query, key and value, of attention's and the layer's output, and before the activation function
  // (Llama: two).
  const double gradients = queries() + 2 * keys() + 2 * hidden() + (llama_ ? 2 : 1) * inner();
  return inputs + gradients;
}

double LayerTensors::kept_by_embedding() const {
  if (causal_) return indices() + hidden();
  return 2 * indices() + hidden() + statistics() + hidden();  // tokens and types, their sum, its norm
}

/// Query, key, value and result. Dropout also keeps the probabilities before and after it.
double LayerTensors::kept_by_attention() const {
  double kept = 2 * queries() + 2 * keys();
  if (has_query_key_norm_) kept += queries() + keys() + statistics(tokens_ * (heads_ + key_heads_));
  if (!dropout_) return kept + wide_ * tokens_ * heads_;        // log-sum-exp
  if (causal_ && !split_documents_) kept += length_ * length_;  // causal mask
  // Views of key and value keep GPT-2's fused projection.
  if (causal_ && !llama_ && !copies_projections()) kept += hidden();
  return kept + pairs(wide_) + pairs(element_);
}

bool LayerTensors::copies_projections() const { return dropout_ && sequences_ > 1 && heads_ > 1; }

/// BERT's norm follows the sum, outside of the sub-layer.
double LayerTensors::graph_of_attention_layer() const {
  return kept_by_attention() + (causal_ ? hidden() + statistics() : 0);
}

/// GPT-2, Llama: the sum after attention, the result of the second norm, the output. BERT: arguments and results of
/// both norms. All: the feed-forward sub-layer before and after its activation function.
double LayerTensors::kept_by_block() const {
  const double attention = recompute_attention_ ? 0 : graph_of_attention_layer();
  return attention + (causal_ ? 3 : 4) * hidden() + (llama_ ? 3 : 2) * inner() + (causal_ ? 1 : 2) * statistics();
}

double LayerTensors::attention_layer_without_graph() const {
  const double projections = queries() + 2 * keys() + (llama_ ? hidden() : 0);  // Llama: also the norm's result
  const double after = queries() + (dropout_ ? 3 : 2) * hidden();  // attention's result, its projection, the sum
  if (!dropout_) return projections + after;
  // Scores, probabilities before and after dropout (in a narrow type converted), a copy of the values, the result.
  const double scores = is_narrow() ? 2 * pairs(wide_) + 2 * pairs(element_) : 3 * pairs(wide_);
  const double copied = copies_projections() ? queries() : 0;
  return projections + std::max(after, scores + copied + queries());
}

double LayerTensors::recomputation_working_set(bool defers) const {
  // I keeps the inputs of the feed-forward layers and the gradients of their outputs.
  const double attention_inputs = (causal_ ? hidden() : 0) + queries();
  const double attention_gradients = hidden() + queries() + 2 * keys();
  const double before = defers ? deferred_by_block() - attention_inputs - attention_gradients : 0;
  const double freed = dropout_ && !defers && !copies_projections() ? queries() + hidden() : 0;
  // The sum and its gradient; without dropout also the block's output gradient, unless it was there before.
  const double sums = (dropout_ || (defers && causal_) ? 2 : 3) * hidden();
  const double gradients =
      2 * queries() + 2 * keys() + (dropout_ ? 2 * pairs(wide_) - pairs(element_) : attention_scratch());
  return before - kept_by_block() + sums + graph_of_attention_layer() - freed + gradients;
}

double LayerTensors::kept_by_head() const {
  // Scored hidden states, their gradient and norm; targets.
  const double logits = 2 * scored() + statistics(targets_) + kTokenBytes * targets_ + kept_logits();
  if (causal_) return logits;
  const double sentence =
      sequences_ * (2 * element_ * width_ + 2 * wide_ + kTokenBytes);  // input, tanh, scores, target
  return 3 * scored() + kTokenBytes * targets_ + logits + sentence;    // the transform; indices of targets
}

/// Micro-batch tensors that the stage does not keep.
double LayerTensors::loaded(const StageLayers& stage) const {
  const double documents = split_documents_ ? indices() : 0;
  if (causal_ && !stage.embedding && !stage.head) return documents;
  const double inputs = documents + (stage.embedding ? 0 : (causal_ ? 1 : 2) * indices());
  if (causal_) return inputs + (stage.head ? 0 : indices());
  return inputs + indices() + (stage.head ? 0 : kTokenBytes * (targets_ + sequences_));
}

double LayerTensors::copied_projections() const {
  if (!dropout_) return 0;
  if (!llama_) return copies_projections() ? 3 * hidden() : causal_ ? 0 : hidden();
  return queries() + (sequences_ > 1 && key_heads_ > 1 ? 2 * keys() : 0);
}

/// Maximum over layers, minus the bytes that later layers keep.
double LayerTensors::forward_working_set(const StageLayers& stage) const {
  double most = 0;
  double later = 0;  // kept by later layers
  if (stage.head) {
    most = chunk_of_logits() - kept_logits() + freed_output();
    later += net_kept_by_head();
  }
  if (stage.end_layer > stage.first_layer) {
    // Temporary tensors: document mask, copied projections, terms of the residual sum.
    const double mask = document_mask() - kept_document_mask();
    const double copied = mask + copied_projections();
    const double added = causal_ && dropout_ ? 2 : 1;
    most = std::max(most, mask + added * hidden() - later);
    if (recompute_attention_) most = std::max(most, attention_layer_without_graph() - kept_by_block() - later);
    if (dropout_ && !recompute_attention_) {
      const double after_attention =
          queries() + (causal_ ? 3 : 4) * hidden() + (llama_ ? 3 : 2) * inner() + (causal_ ? 1 : 2) * statistics();
      const double scores = pairs(element_) + (element_ < wide_ ? pairs(wide_) : 0);
      most = std::max(most, copied + queries() + scores - after_attention - later);
    }
    later += static_cast<double>(stage.end_layer - stage.first_layer) * kept_by_block() + kept_document_mask();
  }
  if (stage.embedding) {
    const double added = llama_ ? (dropout_ ? 1 : 0) : causal_ ? 1 : 3;  // positions, types, output of dropout
    const double looked_up = added * embedded() + (is_narrow() ? embedded() : 0);
    const double normed = causal_ ? 0 : hidden() + statistics();
    most = std::max(most, looked_up - normed - later);
  }
  return most + loaded(stage);
}

/// A weight gradient in a wider type: the product and its conversion, or the converted terms of the bias.
double LayerTensors::product(double in, double out, bool has_bias) const {
  if (!is_narrow()) return 0;
  return std::max((element_ + weight_) * in * out, has_bias ? weight_ * tokens_ * out : 0);
}

/// ATen's fused attention backward on one thread: a block of scores and their gradients.
double LayerTensors::attention_scratch() const {
  const double queries = length_ >= 768 ? 256 : length_ >= 192 ? 64 : 32;
  return 2 * wide_ * std::min(queries, length_) * std::min(512.0, length_);
}

/// The head's weight gradient: last chunk, then the others with recomputed logits.
double LayerTensors::weight_gradient_of_logits() const {
  const double scaled = element_ * last_chunk() * width_ + product(width_, vocabulary_, !causal_);
  const double last = std::max(scaled, causal_ ? 0 : weight_ * vocabulary_);
  const double again = chunk_of_logits() - kept_logits();
  return chunks_.count() > 1 ? std::max(last, again) : last;
}

/// `live` counts bytes relative to the start; layers run from the last to the first.
double LayerTensors::backward_working_set(const StageLayers& stage, bool defers) const {
  const auto blocks = static_cast<double>(stage.end_layer - stage.first_layer);
  const double kept_input = defers && !causal_ ? hidden() : 0;
  double most = 0;
  double live = 0;
  if (stage.head) {
    most = defers ? hidden() : weight_gradient_of_logits();
    live = (defers ? deferred(LayerKind::Head) : 0) - kept_by_head();
    // BERT's hidden states get gradients from masked tokens and sentence order.
    if (!causal_) most = std::max(most, live + 2 * hidden() + (defers ? 0 : scored()));
  }
  if (blocks > 0) {
    const double masked = dropout_ ? hidden() : 0;
    const double added = defers ? 0 : product(inner_width_, width_, has_feed_forward_bias_);
    const double change = (defers ? deferred(LayerKind::Block) + kept_input : 0) - kept_by_block();
    // With recomputation, a block may leave more for W than it kept. Its first block then has the peak.
    const double start = live + (recompute_attention_ ? (blocks - 1) * std::max(change, 0.0) : 0);
    most = std::max(most, start + masked + (defers ? 2 : 1) * inner() + added);
    if (llama_) most = std::max(most, start + (defers ? masked + 3 * inner() : 2 * inner()));  // gate and up projection
    if (recompute_attention_) most = std::max(most, start + recomputation_working_set(defers));
    // Attention: gradients of query, key, value and, with dropout, scores.
    const double replaced_output = stage.head ? hidden() : 0;
    if (defers && !dropout_ && !recompute_attention_)
      most = std::max(most, live + 2 * queries() + 2 * keys() + attention_scratch());
    if (dropout_ && !recompute_attention_) {
      const double scores = 2 * pairs(wide_) - pairs(element_) - (is_narrow() ? hidden() : 0);
      const double beside = defers ? 2 * queries() + 2 * keys() - replaced_output : -(llama_ ? 3 : 2) * inner();
      most = std::max(most, live + scores + beside - (causal_ ? 0 : hidden()));
    }
    live += blocks * change;
    const bool replaced = !defers || dropout_ || !causal_;  // the output's gradient then stays until the end
    if (!stage.head && replaced) live += hidden();
  }
  if (stage.embedding) {
    const double normed = causal_ ? 0 : hidden() + statistics();
    const double positions = defers || llama_ ? 0 : weight_ * length_ * width_;  // summed over sequences
    most = std::max(most, live - normed + (is_narrow() ? embedded() : 0) + positions);
  }
  return most;
}

/// The first linear layer: later layers reuse the memory that it frees.
double LayerTensors::weight_gradient_working_set(const StageLayers& stage) const {
  if (stage.head) return weight_gradient_of_logits();
  if (stage.end_layer == stage.first_layer) return llama_ ? 0 : weight_ * length_ * width_;
  return std::max(product(inner_width_, width_, has_feed_forward_bias_), has_feed_forward_bias_ ? weight_ * width_ : 0);
}

double model_flops(const ModelConfig& config, const Workload& workload) {
  Workload once = workload;
  once.recompute_attention = false;
  const LayerFootprint block = layer_footprint(config, LayerKind::Block, once);
  const LayerFootprint head = layer_footprint(config, LayerKind::Head, once);
  // The head's forward computes the product with its matrix twice, its I never.
  const double logits = (head.forward_flops - head.input_gradient_flops) / 2;
  return static_cast<double>(config.layers) *
             (block.forward_flops + block.input_gradient_flops + block.weight_gradient_flops) +
         3 * (logits + head.input_gradient_flops);
}

}  // namespace chimera
