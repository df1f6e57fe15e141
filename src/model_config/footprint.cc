#include "model_config/footprint.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/mapped.h"
#include "core/masked_tokens.h"
#include "core/reject.h"
#include "model_config/config.h"
#include "model_config/matrices.h"
#include "model_config/parameters.h"
#include "model_config/tensor_cut.h"
#include "schedule/slice_bounds.h"

// The numbers are found in two steps. LayerSizes has the sizes of single tensors and the FLOPs of products.
// LayerTensors adds up which of these tensors a layer keeps from forward to backward, and from I to W, and walks over
// the layers of a stage to find the peak of each kind of op. The terms follow the code in src/model;
// tests/model/footprint_memory_test.cc compares the sums with measured bytes, so a change of a layer that keeps another
// tensor shows there.

namespace chimera {
namespace {

void check(const ModelConfig& config, const Workload& workload) {
  const auto positive = [&](const char* what, std::int64_t value) {
    if (value < 1) reject("the {} must be at least 1, not {}", what, value);
  };
  positive("micro-batch size", workload.micro_batch_size);
  positive("sequence length", workload.sequence);
  positive("number of slices", workload.slices);
  if (workload.slices > workload.sequence)
    reject("a sequence of {} tokens has no {} slices; use fewer", workload.sequence, workload.slices);
  if (workload.sequence > config.positions)
    reject("model '{}': a sequence of {} tokens is longer than its {} positions", config.name, workload.sequence,
           config.positions);
  require_within_window(config, workload.sequence);
}

constexpr double kTokenBytes = 8;  // a token, target or token type (int64)

double as_real(std::int64_t number) { return static_cast<double>(number); }

/// The first of T ranks, whose shares are the largest: they are rounded up, and the last ranks may have less.
TensorPlace first_place(const ModelConfig& config, const Workload& workload) {
  return {0, workload.tensor_parallel, head_groups(config, workload.tensor_parallel)};
}

std::int64_t num_targets(const ModelConfig& config, const Workload& workload) {
  return workload.micro_batch_size * (is_causal(config.family) ? workload.sequence : masked_count(workload.sequence));
}

/// Sizes that all formulas share, each computed once, and the tensors and FLOPs that follow from them directly.
/// Tensors are in bytes, for a micro-batch. Its many members are these sizes; a split by layer would repeat most.
class LayerSizes {
 public:
  LayerSizes(const ModelConfig& config, const Workload& workload, RecomputeLevel level = RecomputeLevel::None)
      : config_(config), workload_(workload), level_(level) {}

  [[nodiscard]] bool is_narrow() const { return element_ != weight_; }
  [[nodiscard]] bool is_on_gpu() const { return workload_.logits_of_chunk > kLogitsOfChunk; }
  /// Hidden states of this rank's tokens; gathered(): of all tokens.
  [[nodiscard]] double hidden() const { return gathered() * own_share_; }
  [[nodiscard]] double gathered() const { return element_ * tokens_ * width_; }
  [[nodiscard]] bool cuts_tokens() const { return own_share_ < 1; }
  /// Queries or attention output of all heads; keys(): keys or values.
  [[nodiscard]] double queries() const { return element_ * tokens_ * query_width_; }
  [[nodiscard]] double keys() const { return element_ * tokens_ * key_width_; }
  [[nodiscard]] double inner() const { return element_ * tokens_ * inner_width_; }
  [[nodiscard]] double indices() const { return kTokenBytes * tokens_; }
  [[nodiscard]] double embedded() const { return weight_ * tokens_ * width_; }
  /// Hidden states of tokens with a loss.
  [[nodiscard]] double scored() const { return element_ * targets_ * width_; }
  [[nodiscard]] double kept_logits() const { return element_ * last_chunk() * vocabulary_; }
  /// Logits of a chunk and their log-probabilities.
  [[nodiscard]] double chunk_of_logits() const { return 2 * wide_ * as_real(chunks_.size) * vocabulary_; }
  /// Scores of all token pairs.
  [[nodiscard]] double pairs(double element) const { return element * sequences_ * heads_ * length_ * length_; }
  /// Statistics that a norm keeps: mean and reciprocal standard deviation, or the reciprocal root mean square.
  [[nodiscard]] double statistics(double rows) const { return rows * (llama_ ? wide_ : 2 * element_); }
  [[nodiscard]] double statistics() const { return statistics(tokens_ * own_share_); }
  [[nodiscard]] double rotary_table() const { return llama_ ? element_ * length_ * head_size_ : 0; }

  /// CPUs attend to each document alone, unless dropout needs the scores.
  [[nodiscard]] double document_mask() const {
    const bool is_read = split_documents_ && (dropout_ || is_on_gpu());
    return is_read ? element_ * sequences_ * length_ * length_ : 0;
  }
  [[nodiscard]] double kept_document_mask() const { return dropout_ && !reruns_attention() ? 0 : document_mask(); }

  [[nodiscard]] double flops_of_block() const {
    // Columns of all matrices of a block: query and output projection, key and value projection, and feed-forward
    // layers (Llama has a gate too). A product takes 2 FLOPs for each token, row and column.
    const double projections = 2 * query_width_ + 2 * key_width_ + (llama_ ? 3 : 2) * inner_width_;
    return 2 * tokens_ * width_ * projections + flops_of_attention();
  }
  /// The attention sub-layer: projections, scores and weighted means of values.
  [[nodiscard]] double flops_of_attention_layer() const {
    return 2 * tokens_ * width_ * (2 * query_width_ + 2 * key_width_) + flops_of_attention();
  }
  [[nodiscard]] double flops_of_recomputation() const {
    return level_ == RecomputeLevel::Full ? flops_of_block() : reruns_attention() ? flops_of_attention_layer() : 0;
  }
  /// Scores and weighted means of values.
  // Two products per head, each of L x L x head size and 2 FLOPs. Causal models count the hidden half too, as usual.
  [[nodiscard]] double flops_of_attention() const { return 4 * sequences_ * length_ * length_ * query_width_; }
  [[nodiscard]] double flops_of_logits() const { return 2 * targets_ * width_ * vocabulary_; }
  /// Fraction of the logits that W recomputes.
  // The gradient of the last chunk's logits is kept from the forward.
  [[nodiscard]] double recomputed_fraction() const { return 1 - last_chunk() / targets_; }
  /// The head before the logits, and the sentence-order head.
  [[nodiscard]] double flops_of_transform() const {
    // BERT's transform of each masked token, and for each sequence the pooler and its two scores.
    return causal_ ? 0 : 2 * targets_ * width_ * width_ + 2 * sequences_ * width_ * (width_ + 2);
  }

  /// Returns whether the first linear layers keep the layer's input for W.
  [[nodiscard]] bool linear_reads_input(LayerKind kind) const { return !causal_ && kind == LayerKind::Block; }

  /// The last block's output, if a stage with the head does not keep it.
  [[nodiscard]] double freed_output() const { return causal_ || keeps_gathered_inputs() ? 0 : hidden(); }
  /// The last block's output, if a stage without the head keeps it in addition to what its blocks keep.
  [[nodiscard]] double kept_output() const { return keeps_gathered_inputs() ? hidden() : 0; }
  /// Whether BERT's blocks keep all tokens of their inputs, instead of this rank's tokens of their outputs.
  [[nodiscard]] bool keeps_gathered_inputs() const { return !causal_ && cuts_tokens() && !reruns_attention(); }

 protected:
  [[nodiscard]] bool reruns_attention() const { return level_ >= RecomputeLevel::Attention; }
  [[nodiscard]] std::int64_t rows_of_vocabulary() const {
    return first_place(config_, workload_).share_of(config_.vocabulary).count;
  }
  [[nodiscard]] double last_chunk() const { return as_real(chunks_.last_size()); }
  /// Heads of the first rank, which has the most.
  [[nodiscard]] double held_heads(std::int64_t heads) const {
    return as_real(first_place(config_, workload_).share_of_heads(heads).count);
  }

  const ModelConfig& config_;
  const Workload& workload_;
  bool causal_ = is_causal(config_.family);
  bool llama_ = config_.family == Family::Llama;
  bool has_feed_forward_bias_ = !llama_ || config_.feed_forward_bias;
  bool dropout_ = workload_.dropout;
  bool split_documents_ = workload_.split_documents && causal_;
  RecomputeLevel level_;
  double element_ = as_real(workload_.compute_bytes);  // bytes of hidden states
  double wide_ = std::max(element_, 4.0);              // bytes of tensors in at least float32
  double weight_ = as_real(workload_.weight_bytes);    // bytes of weights and gradients
  double sequences_ = as_real(workload_.micro_batch_size);
  double length_ = as_real(workload_.sequence);
  double tokens_ = sequences_ * length_;
  double ranks_ = as_real(workload_.tensor_parallel);  // T
  bool is_split_ = workload_.tensor_parallel > 1;
  // Of the tokens between split layers, on this rank. The ranks divide tokens only evenly; otherwise each has all
  // tokens (WholeTokens in model/tensor_parallel.h).
  double own_share_ = workload_.cuts_tokens && workload_.sequence % workload_.tensor_parallel == 0 ? 1 / ranks_ : 1;
  TokenChunks chunks_ = chunks_of(num_targets(config_, workload_), rows_of_vocabulary(), workload_.logits_of_chunk);
  double targets_ = as_real(chunks_.tokens);  // tokens with a loss
  double width_ = as_real(config_.hidden);
  double inner_width_ = as_real(first_place(config_, workload_).share_of(config_.feed_forward).count);
  double vocabulary_ = as_real(rows_of_vocabulary());
  double heads_ = held_heads(config_.heads);
  // More ranks than such heads: each rank uses one.
  double key_heads_ = std::max(held_heads(key_value_heads_of(config_)), 1.0);
  double head_size_ = as_real(head_size_of(config_));
  double query_width_ = heads_ * head_size_;
  double key_width_ = key_heads_ * head_size_;
};

struct BlocksAtLevel {
  RecomputeLevel level = RecomputeLevel::None;
  double blocks = 0;
};

/// Returns the levels that a stage's blocks have, from the last block to the first.
std::vector<BlocksAtLevel> levels_of(const StageLayers& stage) {
  std::vector<BlocksAtLevel> levels;
  const std::int64_t plain = stage.blocks() - stage.levels.all();
  if (plain > 0) levels.push_back({RecomputeLevel::None, as_real(plain)});
  for (const RecomputeLevel level : kRecomputeLevels)
    if (stage.levels[level] > 0) levels.push_back({level, as_real(stage.levels[level])});
  return levels;
}

/// Bytes that layers keep from forward to backward, and peaks of their working sets.
class LayerTensors : public LayerSizes {
 public:
  using LayerSizes::LayerSizes;

  [[nodiscard]] double kept(LayerKind kind) const {
    switch (kind) {
      case LayerKind::Embedding: return kept_by_embedding();
      case LayerKind::Block: return kept_by_block();
      case LayerKind::Head: return kept_by_head();
    }
    return 0;
  }

  /// Inputs of linear layers and gradients of their outputs; for the embedding, the gradient of its rows.
  [[nodiscard]] double deferred(LayerKind kind) const {
    if (kind == LayerKind::Embedding) {
      // Positions and types add this rank's tokens, before zeros replace the gradients of tokens with rows elsewhere.
      return embedded() + (causal_ ? 1 : 2) * indices() + (is_split_ && !llama_ ? embedded() * own_share_ : 0);
    }
    if (kind == LayerKind::Block) return deferred_by_block();
    const double logits = scored() + kTokenBytes * targets_ + kept_logits() + log_sums();
    if (causal_) return logits;
    // Transform and pooler: input and output gradient; sentence scores: input and gradient.
    return 2 * scored() + logits + element_ * sequences_ * (3 * width_ + 2);
  }

  /// Maximum over layers, minus the bytes that later layers keep. A working set counts above the bytes in use after the
  /// op. While a layer runs, later layers have kept nothing yet, so its peak counts minus what they will keep. The walk
  /// therefore goes from the last layer to the first and adds up `later`.
  [[nodiscard]] double forward_working_set(const StageLayers& stage) const {
    double most = 0;
    double later = 0;  // kept by later layers
    if (stage.head) {
      // BERT's head gathers all tokens.
      const double input = cuts_tokens() ? gathered() + hidden() : hidden();
      most = chunk_of_logits() - kept_logits() + (causal_ ? 0 : input);
      later += net_kept_by_head();
    }
    if (stage.end_layer > stage.first_layer) {
      for (const auto& [level, blocks] : levels_of(stage)) {
        const LayerTensors block = at_level(level);
        most = std::max(most, block.forward_working_set_of_block() - later);
        later += blocks * block.kept_by_block();
      }
      later += kept_document_mask();
    }
    if (stage.embedding) {
      const double added = llama_ ? (dropout_ ? 1 : 0) : causal_ ? 1 : 3;  // positions, types, output of dropout
      const double looked_up = added * embedded() + (is_narrow() ? embedded() : 0);
      const double normed = causal_ ? 0 : hidden() + statistics();
      most = std::max(most, looked_up - normed - later);
      if (is_split_) most = std::max(most, 2 * embedded() - normed - later);  // with zeros for tokens of other ranks
    }
    return most + loaded(stage);
  }

  /// `live` counts bytes relative to the start; layers run from the last to the first.
  [[nodiscard]] double backward_working_set(const StageLayers& stage, bool defers) const {
    // BERT's first linear layers read the block's input itself (linear_reads_input()), so W keeps it.
    const double kept_input = defers && !causal_ ? gathered() : 0;
    double most = 0;
    double live = 0;
    if (stage.head) {
      most = defers ? hidden() : weight_gradient_of_logits();
      // After the head's backward, its activations are gone; I leaves what W needs.
      live = (defers ? deferred(LayerKind::Head) : 0) - kept_by_head();
      // BERT's hidden states get gradients from masked tokens and sentence order.
      if (!causal_) most = std::max(most, live + 2 * gathered() + (defers ? 0 : scored()));
    }
    if (stage.end_layer > stage.first_layer) {
      for (const auto& [level, count] : levels_of(stage)) {
        const LayerTensors block = at_level(level);
        const double change = (defers ? deferred(LayerKind::Block) + kept_input : 0) - block.kept_by_block();
        // With recomputation, a block may leave more for W than it kept. Its first block then has the peak.
        const double start = live + (level != RecomputeLevel::None ? (count - 1) * std::max(change, 0.0) : 0);
        most = std::max(most, start + block.backward_working_set_of_block(defers, stage.head ? hidden() : 0));
        live += count * change;
      }
      const bool replaced = !defers || dropout_ || !causal_;  // the output's gradient then stays until the end
      if (!stage.head && replaced) live += hidden();
    }
    if (stage.embedding) {
      const double normed = causal_ ? 0 : hidden() + statistics();
      const double positions = defers || llama_ ? 0 : weight_ * length_ * own_share_ * width_;  // of all sequences
      most = std::max(most, live - normed + (is_narrow() ? embedded() : 0) + positions);
      if (is_split_) most = std::max(most, live - normed + (cuts_tokens() ? 2 : 1) * embedded());
    }
    return most;
  }

  /// The first linear layer: later layers reuse the memory that it frees.
  [[nodiscard]] double weight_gradient_working_set(const StageLayers& stage) const {
    // W runs the queue in the order of backward, so the head comes first.
    if (stage.head) return weight_gradient_of_logits();
    if (stage.end_layer == stage.first_layer) return llama_ ? 0 : weight_ * length_ * own_share_ * width_;
    return std::max(product(inner_width_, width_, has_feed_forward_bias_),
                    has_feed_forward_bias_ ? weight_ * width_ : 0);
  }

 private:
  [[nodiscard]] LayerTensors at_level(RecomputeLevel level) const {
    LayerTensors tensors = *this;
    tensors.level_ = level;
    return tensors;
  }

  /// Peak of a block's forward above the bytes in use after it.
  [[nodiscard]] double forward_working_set_of_block() const {
    // Temporary tensors: document mask, copied projections, terms of the residual sum.
    const double mask = document_mask() - kept_document_mask();
    const double copied = mask + copied_projections();
    const double added = causal_ && dropout_ ? 2 : 1;
    // BERT's result of the first norm stays until the second.
    const double remade = level_ == RecomputeLevel::Cheap ? inner() + (causal_ ? 0 : hidden()) : 0;
    double most = mask + remade + std::max(added * hidden(), partial_sums());
    // Runs without a graph, while nothing of this block is kept yet.
    if (reruns_attention()) most = std::max(most, attention_layer_without_graph() - kept_by_block());
    if (level_ == RecomputeLevel::Full)
      most = std::max(most, (!causal_ && is_split_ ? 3 : 1) * hidden() +
                                (llama_ ? 3 * inner() : gathered() + 2 * inner()) - kept_by_block());
    if (dropout_ && !reruns_attention()) {
      // What the block keeps after its scores have been made, which does not exist at the peak.
      const double after_attention = queries() + kept_by_feed_forward();
      const double scores = pairs(element_) + (element_ < wide_ ? pairs(wide_) : 0);
      most = std::max(most, copied + queries() + scores - after_attention);
    }
    return most;
  }

  /// Peak of a block's backward above the bytes before it. `replaced_output`: bytes of the stage's output, if gone.
  [[nodiscard]] double backward_working_set_of_block(bool defers, double replaced_output) const {
    if (level_ == RecomputeLevel::Full) {
      // The whole graph is made again, next to the gradient of the block's output.
      const LayerTensors whole = at_level(RecomputeLevel::None);
      return whole.kept_by_block() + whole.backward_working_set_of_block(defers, 0);
    }
    const double masked = (dropout_ ? hidden() : 0) + partial_sums();
    const double added = defers ? 0 : product(inner_width_, width_, has_feed_forward_bias_);
    const double remade = level_ == RecomputeLevel::Cheap ? inner() : 0;
    double most = remade + masked + (defers ? 2 : 1) * inner() + added;
    if (llama_)
      most = std::max(most, remade + (defers ? masked + 3 * inner() : 2 * inner()));  // gate and up projection
    if (reruns_attention()) return std::max(most, recomputation_working_set(defers));
    // Attention: gradients of query, key, value and, with dropout, scores.
    if (defers && !dropout_) {
      // W keeps what was made again.
      const double again = level_ == RecomputeLevel::Cheap ? inner() + 2 * gathered() + partial_sums() : 0;
      most = std::max(most, again + 2 * queries() + 2 * keys() + attention_scratch());
    }
    if (dropout_) {
      const double scores = 2 * pairs(wide_) - pairs(element_) - (is_narrow() ? hidden() : 0);
      const double beside = defers ? 2 * queries() + 2 * keys() - replaced_output : remade - (llama_ ? 3 : 2) * inner();
      most = std::max(most, scores + beside - (causal_ ? 0 : hidden()));
    }
    return most;
  }

  [[nodiscard]] double deferred_by_block() const {
    // Inputs of both attention projections (BERT: only of the second) and of the feed-forward layers.
    const double inputs = (causal_ ? 2 : 1) * gathered() + queries() + inner();
    // Gradients of query, key and value, of attention's and the layer's output, and before the activation function
    // (Llama: two).
    const double gradients = queries() + 2 * keys() + 2 * gathered() + (llama_ ? 2 : 1) * inner();
    return inputs + gradients + own_bias_gradients();
  }

  [[nodiscard]] double kept_by_embedding() const {
    const double elsewhere = is_split_ ? tokens_ : 0;  // a byte per token: whether another rank has its row
    if (causal_) return indices() + elsewhere + hidden();
    // Tokens and types, their sum, its norm
    return elsewhere + 2 * indices() + hidden() + statistics() + hidden() - kept_output();
  }

  /// Query, key, value and result. Dropout also keeps the probabilities before and after it.
  [[nodiscard]] double kept_by_attention() const {
    double kept = 2 * queries() + 2 * keys();
    if (config_.query_key_norm) kept += queries() + keys() + statistics(tokens_ * (heads_ + key_heads_));
    if (!dropout_) return kept + wide_ * tokens_ * heads_;        // log-sum-exp
    if (causal_ && !split_documents_) kept += length_ * length_;  // causal mask
    // Views of key and value keep GPT-2's fused projection.
    if (causal_ && !llama_ && !copies_projections()) kept += queries();
    return kept + pairs(wide_) + pairs(element_);
  }

  /// Returns whether query, key and value are copied: products with dropout need one matrix per head.
  [[nodiscard]] bool copies_projections() const { return dropout_ && sequences_ > 1 && heads_ > 1; }

  /// The attention sub-layer with its norm, without its input: bytes in the graph of one call. BERT's norm follows the
  /// sum, outside of the sub-layer.
  [[nodiscard]] double graph_of_attention_layer() const {
    return kept_by_attention() + (causal_ ? gathered() + statistics() : 0);
  }

  /// GPT-2, Llama: the sum after attention, the result of the second norm, the output. BERT: arguments and results of
  /// both norms. All: the feed-forward sub-layer before and after its activation function.
  [[nodiscard]] double kept_by_feed_forward() const {
    // GPT-2 and Llama norm before the sub-layer, whose input is gathered. BERT norms after it.
    const double results = causal_ ? gathered() : gathered() + (reruns_attention() ? hidden() : gathered());
    return 2 * hidden() + results + (llama_ ? 3 : 2) * inner() + (causal_ ? 1 : 2) * statistics();
  }

  [[nodiscard]] double kept_by_block() const {
    switch (level_) {
      case RecomputeLevel::None: break;
      // Inputs of the linear layers after norms (BERT: one) and of the layer after the activation function.
      case RecomputeLevel::Cheap:
        return graph_of_attention_layer() + kept_by_feed_forward() - (causal_ ? 2 : 1) * gathered() - inner();
      case RecomputeLevel::Attention: return kept_by_feed_forward();
      case RecomputeLevel::Full: return hidden();  // the output, which the next layer keeps as its input
    }
    return graph_of_attention_layer() + kept_by_feed_forward();
  }

  /// Peak bytes of a call of the attention sub-layer without a graph, beyond its input.
  [[nodiscard]] double attention_layer_without_graph() const {
    // Also Llama's result of the norm, and BERT's gathered input
    const double projections = queries() + 2 * keys() + (llama_ ? gathered() : causal_ ? 0 : partial_sums());
    // Attention's result, its projection, the sum
    const double after = queries() + gathered() + (dropout_ ? 2 : 1) * hidden();
    if (!dropout_) return projections + after;
    // Scores, probabilities before and after dropout (in a narrow type converted), a copy of the values, the result.
    const double scores = is_narrow() ? 2 * pairs(wide_) + 2 * pairs(element_) : 3 * pairs(wide_);
    const double copied = copies_projections() ? queries() : 0;
    return projections + std::max(after, scores + copied + queries());
  }

  /// Peak bytes of the attention sub-layer's second call and its backward, relative to the bytes before the block's
  /// backward.
  [[nodiscard]] double recomputation_working_set(bool defers) const {
    // I keeps the inputs of the feed-forward layers and the gradients of their outputs.
    const double attention_inputs = (causal_ ? gathered() : 0) + queries();
    const double attention_gradients = gathered() + own_bias_gradients() / 2 + queries() + 2 * keys();
    const double before = defers ? deferred_by_block() - attention_inputs - attention_gradients : 0;
    const double freed = dropout_ && !defers && !copies_projections() ? queries() + gathered() / ranks_ : 0;
    // The sum and its gradient; without dropout also the block's output gradient, unless it was there before.
    const double sums = (dropout_ || (defers && causal_) ? 2 : 3) * hidden() + partial_sums();
    const double gradients =
        2 * queries() + 2 * keys() + (dropout_ ? 2 * pairs(wide_) - pairs(element_) : attention_scratch());
    const double input = causal_ ? 0 : partial_sums();  // gathered again
    return before - kept_by_block() + sums + input + graph_of_attention_layer() - freed + gradients;
  }

  [[nodiscard]] double kept_by_head() const {
    // Scored hidden states, their gradient and norm; targets.
    const double logits = 2 * scored() + statistics(targets_ * (causal_ ? own_share_ : 1)) + kTokenBytes * targets_ +
                          kept_logits() + log_sums();
    if (causal_) return logits;
    const double sentence =
        sequences_ * (2 * element_ * width_ + 2 * wide_ + kTokenBytes);  // input, tanh, scores, target
    return 3 * scored() + kTokenBytes * targets_ + logits + sentence;    // the transform; indices of targets
  }

  /// Micro-batch tensors that the stage does not keep.
  [[nodiscard]] double loaded(const StageLayers& stage) const {
    const double documents = split_documents_ ? indices() : 0;
    if (causal_ && !stage.embedding && !stage.head) return documents;
    const double inputs = documents + (stage.embedding ? (is_split_ ? indices() : 0) : (causal_ ? 1 : 2) * indices());
    if (causal_) return inputs + (stage.head ? 0 : indices());
    return inputs + indices() + (stage.head ? 0 : kTokenBytes * (targets_ + sequences_));
  }

  [[nodiscard]] double copied_projections() const {
    if (!dropout_) return 0;
    if (!llama_) return copies_projections() ? 3 * queries() : causal_ ? 0 : queries();
    return queries() + (sequences_ > 1 && key_heads_ > 1 ? 2 * keys() : 0);
  }

  /// A weight gradient in a wider type: the product and its conversion, or the converted terms of the bias. Kernels of
  /// GPUs add to wide sums at once.
  [[nodiscard]] double product(double in, double out, bool has_bias) const {
    if (!is_narrow() || is_on_gpu()) return 0;
    return std::max((element_ + weight_) * in * out, has_bias ? weight_ * tokens_ * out : 0);
  }

  /// ATen's fused attention backward on one thread: a block of scores and their gradients.
  [[nodiscard]] double attention_scratch() const {
    // Sizes of blocks in ATen's FlashAttentionKernel.cpp: 256, 64 or 32 queries by 512 keys, depending on the length.
    const double queries = length_ >= 768 ? 256 : length_ >= 192 ? 64 : 32;
    return 2 * wide_ * std::min(queries, length_) * std::min(512.0, length_);
  }

  /// The head's weight gradient: last chunk, then the others with recomputed logits.
  [[nodiscard]] double weight_gradient_of_logits() const {
    const double scaled = element_ * last_chunk() * width_ + product(width_, vocabulary_, !causal_);
    const double last = std::max(scaled, causal_ ? 0 : weight_ * vocabulary_);
    const double again = chunk_of_logits() - kept_logits();
    return chunks_.count() > 1 ? std::max(last, again) : last;
  }

  /// Output of a layer that is split by rows, before its tokens are cut, or the gradient of this output.
  [[nodiscard]] double partial_sums() const { return cuts_tokens() ? gathered() : 0; }

  /// Gradients of this rank's tokens. The weight-gradient op (W) needs them for biases of layers split by rows.
  [[nodiscard]] double own_bias_gradients() const {
    const bool has_attention_bias = !llama_ || config_.attention_bias == AttentionBias::All;
    return cuts_tokens() ? ((has_attention_bias ? 1 : 0) + (has_feed_forward_bias_ ? 1 : 0)) * hidden() : 0;
  }

  /// Logarithms of the sums over the whole vocabulary.
  [[nodiscard]] double log_sums() const { return is_split_ ? wide_ * targets_ : 0; }

  /// Bytes that the head adds to those kept by its stage.
  [[nodiscard]] double net_kept_by_head() const { return kept_by_head() - freed_output(); }
};

std::int64_t held_count(const std::vector<ParameterSpec>& parameters, const TensorPlace& place) {
  std::int64_t held = 0;
  for (const ParameterSpec& spec : parameters) held += held_elements(spec, place);
  return held;
}

/// Counts a block's parameters on the first rank. Keeps the last count: specifications have names, which take time to
/// make, and a plan asks thousands of times for one model.
std::int64_t held_by_block(const ModelConfig& config, const TensorPlace& first) {
  struct Known {
    ModelConfig config;
    std::int64_t ranks = 0;
    std::int64_t held = 0;
  };
  thread_local Known known;
  if (known.ranks != first.ranks || known.config != config)
    known = {config, first.ranks, held_count(block_parameters(config, 0), first)};
  return known.held;
}

/// Counts one block for all.
std::int64_t held_count(const ModelConfig& config, const StageLayers& stage, const TensorPlace& place) {
  StageLayers one = stage;
  one.end_layer = std::min(stage.end_layer, stage.first_layer + 1);
  const std::int64_t others = stage.blocks() - one.blocks();
  const std::int64_t held = held_count(stage_parameters(config, one), place);
  return others == 0 ? held : held + others * held_by_block(config, place);
}

LayerFootprint footprint_of(const ModelConfig& config, LayerKind kind, const Workload& workload,
                            RecomputeLevel level = RecomputeLevel::None) {
  // FLOPs are those of all T ranks together, bytes and parameters those of the first.
  Workload of_all_ranks = workload;
  of_all_ranks.tensor_parallel = 1;
  const LayerSizes sizes(config, of_all_ranks, level);
  const TensorPlace place = first_place(config, workload);
  LayerFootprint layer;
  switch (kind) {
    case LayerKind::Embedding: layer.parameters = held_count(embedding_parameters(config), place); break;
    case LayerKind::Block:
      layer.parameters = held_by_block(config, place);
      layer.forward_flops = sizes.flops_of_block();
      // With P FLOPs of matrices and A of attention in the forward: I takes P + 2 A, since each product of attention
      // has two factors with gradients, and W takes P, since attention has no weights.
      layer.input_gradient_flops = sizes.flops_of_block() + sizes.flops_of_attention() + sizes.flops_of_recomputation();
      layer.weight_gradient_flops = sizes.flops_of_block() - sizes.flops_of_attention();
      break;
    case LayerKind::Head:
      layer.parameters = held_count(head_parameters(config), place);
      // The forward also computes the gradient of the hidden states.
      layer.forward_flops = 2 * sizes.flops_of_logits() + sizes.flops_of_transform();
      layer.input_gradient_flops = sizes.flops_of_transform();
      layer.weight_gradient_flops =
          (1 + sizes.recomputed_fraction()) * sizes.flops_of_logits() + sizes.flops_of_transform();
      break;
  }
  const LayerTensors tensors(config, workload, level);
  layer.activations = tensors.kept(kind);
  layer.deferred = tensors.deferred(kind);
  return layer;
}

/// Parameters with low-precision copies: all but embedding tables.
double copied_parameters(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  const TensorPlace place = first_place(config, workload);
  // Embedding tables have none: their rows are looked up in full precision, and only the result is converted. A tied
  // table has a copy as output matrix.
  double copied = as_real(held_count(config, stage, place));
  if (!stage.embedding) return copied;
  for (const ParameterSpec& spec : embedding_parameters(config))
    if (spec.shape.size() == 2) copied -= as_real(held_count({spec}, place));
  return copied + (config.tied && stage.head ? as_real(held_count({tied_parameter(config)}, place)) : 0);
}

/// Elements of Muon's matrices on a rank.
double held_matrices(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  return as_real(elements_of(logical_matrices(config, stage))) / as_real(workload.tensor_parallel);
}

StageMemory kept_between_steps(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  const TensorPlace place = first_place(config, workload);
  const double parameters = as_real(held_count(config, stage, place));
  const double weight_bytes = as_real(workload.weight_bytes);
  const bool two_uses = config.tied && stage.embedding && stage.head;
  // A worker with both uses of the tied matrix sums their gradients separately (TiedWeight in model/parameter_group.h).
  const double second_sum = two_uses ? as_real(held_count({tied_parameter(config)}, place)) : 0;
  StageMemory memory;
  memory.weights = weight_bytes * parameters;
  if (workload.compute_bytes != workload.weight_bytes)
    memory.weights += as_real(workload.compute_bytes) * copied_parameters(config, stage, workload);
  memory.gradients = weight_bytes * (parameters + second_sum);
  memory.optimizer = as_real(workload.optimizer_bytes) * parameters;
  if (workload.matrix_optimizer_bytes) {
    const double more = as_real(*workload.matrix_optimizer_bytes - workload.optimizer_bytes);
    memory.optimizer += more * held_matrices(config, stage, workload);
  }
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
  const auto blocks = as_real(stage.blocks());
  const auto element = as_real(workload.compute_bytes);
  const double keys_and_values = 2 * all.keys();
  // Bytes of the keys and values, and of their gradients in at least float32 (model/key_value_cache.cc).
  footprint.memory.keys_and_values = blocks * keys_and_values * (1 + std::max(element, 4.0) / element);
  if (stage.head) {
    const double logits = as_real(workload.slices) * LayerTensors(config, longest).kept_logits();
    // Each slice keeps the logits of its own last chunk.
    const double more = std::max(0.0, logits - all.kept_logits());
    footprint.memory.activations += more;
    footprint.memory.deferred = footprint.memory.deferred.value_or(0) + more;
  }
  // Then a slice needs masks over the whole sequence; the whole micro-batch is an upper bound.
  if (workload.dropout || workload.split_documents) return;
  const StageFootprint slice = stage_footprint(config, stage, longest);
  // Gradients of keys and values of all tokens so far, in two parts and joined
  const double joined = blocks > 0 ? 2 * keys_and_values : 0;
  footprint.working_sets = slice.working_sets;
  for (const OpKind kind : {OpKind::Backward, OpKind::BackwardInput}) footprint.working_set(kind) += joined;
}

}  // namespace

Workload workload_of(DataType dtype, OptimizerKind optimizer, std::int64_t sequence) {
  Workload workload;
  workload.sequence = sequence;
  workload.compute_bytes = bytes_of(dtype);
  workload.weight_bytes = bytes_of(master_type(dtype));
  workload.optimizer_bytes = moments_of(optimizer) * workload.weight_bytes;
  if (optimizer == OptimizerKind::Muon) {
    workload.matrix_optimizer_bytes = matrix_moments_of(optimizer) * workload.weight_bytes;
    workload.iteration_bytes = workload.compute_bytes;
  }
  return workload;
}

double gathered_bytes(const ModelConfig& config, const StageLayers& stage, const Workload& workload,
                      std::size_t copies) {
  if (workload.iteration_bytes == 0 || copies < 2) return 0;
  return as_real(workload.iteration_bytes) * held_matrices(config, stage, workload);
}

LayerFootprint layer_footprint(const ModelConfig& config, LayerKind kind, const Workload& workload,
                               RecomputeLevel level) {
  check(config, workload);
  return footprint_of(config, kind, workload, level);
}

double attention_share(const ModelConfig& config, std::int64_t sequence) {
  const Workload workload{.micro_batch_size = 1, .sequence = sequence};
  const auto flops = [&](LayerKind kind) {
    const LayerFootprint layer = layer_footprint(config, kind, workload);
    return layer.forward_flops + layer.input_gradient_flops + layer.weight_gradient_flops;
  };
  const auto blocks = as_real(config.layers);
  // once in the forward, twice in the input gradient
  const double attention = 3 * LayerTensors(config, workload).flops_of_attention();
  const double others = flops(LayerKind::Embedding) + flops(LayerKind::Head);
  return blocks * attention / (blocks * flops(LayerKind::Block) + others);
}

std::vector<std::int64_t> balanced_slices(std::int64_t slices, std::int64_t sequence, double attention) {
  constexpr std::int64_t kTile = 16;
  // Products on GPUs are faster for multiples of 16 rows. Bounds are whole units; short sequences are cut at any token.
  const std::int64_t unit = sequence % kTile == 0 && sequence >= slices * kTile ? kTile : 1;
  const std::int64_t units = sequence / unit;
  std::vector<std::int64_t> bounds;
  for (const double fraction : balanced_bounds(slices, attention)) {
    const std::int64_t j = std::ssize(bounds);
    // At least one unit for this slice, and one for each later slice.
    const std::int64_t least = bounds.empty() ? 0 : bounds.back() / unit + 1;
    const std::int64_t most = units - (slices - j);
    const auto nearest = static_cast<std::int64_t>(std::llround(fraction * as_real(units)));
    bounds.push_back(unit * (j == 0 ? 0 : std::clamp(nearest, least, most)));
  }
  return bounds;
}

std::vector<double> as_fractions(const std::vector<std::int64_t>& bounds) {
  return mapped<double>(bounds, [&](std::int64_t bound) { return as_real(bound) / as_real(bounds.back()); });
}

StageFootprint stage_footprint(const ModelConfig& config, const StageLayers& stage, const Workload& workload) {
  check(config, workload);
  const std::vector<BlocksAtLevel> levels = levels_of(stage);
  // The level of the first blocks is the highest. All blocks share the document mask.
  const RecomputeLevel first = levels.empty() ? RecomputeLevel::None : levels.back().level;
  const LayerTensors tensors(config, workload, first);
  StageFootprint result;
  result.parameters = held_count(config, stage, first_place(config, workload));
  result.memory = kept_between_steps(config, stage, workload);
  if (stage.end_layer > stage.first_layer) result.memory.weights += tensors.rotary_table();
  // The input of the first stage is tokens, which its embedding counts.
  result.memory.boundary = stage.embedding ? 0 : tensors.hidden();
  result.memory.activations = result.memory.boundary;
  double deferred = 0;
  const auto add = [&](LayerKind kind, double copies, RecomputeLevel level = RecomputeLevel::None) {
    const LayerFootprint layer = footprint_of(config, kind, workload, level);
    result.forward_flops += copies * layer.forward_flops;
    result.input_gradient_flops += copies * layer.input_gradient_flops;
    result.weight_gradient_flops += copies * layer.weight_gradient_flops;
    result.memory.activations += copies * layer.activations;
    // BERT's blocks also keep their input for W, which is the output of the layer before.
    deferred += copies * (layer.deferred + (tensors.linear_reads_input(kind) ? tensors.gathered() : 0));
  };
  if (stage.embedding) add(LayerKind::Embedding, 1, first);
  double blocks_on_device = 0;  // bytes
  double left = as_real(stage.on_device);
  for (const auto& [level, blocks] : levels) {
    add(LayerKind::Block, blocks, level);
    const double stay = std::min(blocks, left);
    blocks_on_device += stay * LayerTensors(config, workload, level).kept(LayerKind::Block);
    left -= stay;
  }
  if (stage.end_layer > stage.first_layer) result.memory.activations += tensors.kept_document_mask();
  if (stage.head) {
    add(LayerKind::Head, 1);
    result.memory.activations -= tensors.freed_output();
  } else if (stage.end_layer > stage.first_layer) {
    result.memory.activations += tensors.kept_output();
  }
  result.memory.deferred = deferred;
  // Offloading leaves the input of a stage and its last tensors on the device (docs/footprint.md).
  const double end = stage.head ? tensors.kept(LayerKind::Head) : tensors.hidden();
  result.stays = std::min(result.memory.boundary + end + blocks_on_device, result.memory.activations);
  result.working_sets = {tensors.forward_working_set(stage), tensors.backward_working_set(stage, /*defers=*/false),
                         tensors.backward_working_set(stage, /*defers=*/true),
                         tensors.weight_gradient_working_set(stage)};
  if (workload.slices > 1) cut_into_slices(config, stage, workload, result);
  return result;
}

BlockFlops block_flops(const ModelConfig& config, const Workload& workload) {
  const LayerSizes sizes(config, workload);
  return {.all = sizes.flops_of_block(),
          .attention_layer = sizes.flops_of_attention_layer(),
          .attention = sizes.flops_of_attention()};
}

double model_flops(const ModelConfig& config, const Workload& workload) {
  const LayerFootprint block = layer_footprint(config, LayerKind::Block, workload);
  const LayerFootprint head = layer_footprint(config, LayerKind::Head, workload);
  // The head's forward computes the product with its matrix twice, its I never.
  const double logits = (head.forward_flops - head.input_gradient_flops) / 2;
  return as_real(config.layers) * (block.forward_flops + block.input_gradient_flops + block.weight_gradient_flops) +
         3 * (logits + head.input_gradient_flops);
}

}  // namespace chimera
