#pragma once
// The tensors that layers make of one micro-batch: what footprint.cc adds up.

#include "model_config/footprint.h"
#include "model_config/logit_chunks.h"

namespace chimera {

inline constexpr double kTokenBytes = 8;  // of a token, target or token type: int64

/// The tensors that layers make of one micro-batch, in bytes, and what becomes of them.
class LayerTensors {
 public:
  LayerTensors(const ModelConfig& config, const Workload& workload);

  [[nodiscard]] bool is_narrow() const { return element_ != weight_; }
  [[nodiscard]] double hidden() const { return element_ * tokens_ * width_; }
  /// Queries of all heads, or what attention makes of them; keys, or values.
  [[nodiscard]] double queries() const { return element_ * tokens_ * query_width_; }
  [[nodiscard]] double keys() const { return element_ * tokens_ * key_width_; }
  [[nodiscard]] double inner() const { return element_ * tokens_ * inner_width_; }
  [[nodiscard]] double indices() const { return kTokenBytes * tokens_; }
  [[nodiscard]] double embedded() const { return weight_ * tokens_ * width_; }
  /// Hidden states of the tokens at which a loss is taken.
  [[nodiscard]] double scored() const { return element_ * targets_ * width_; }
  /// The gradient of the last chunk's logits.
  [[nodiscard]] double kept_logits() const { return element_ * last_chunk() * vocabulary_; }
  /// The logits of a whole chunk and their log-probabilities.
  [[nodiscard]] double chunk_of_logits() const { return 2 * wide_ * static_cast<double>(chunks_.size) * vocabulary_; }
  /// Scores of every pair of tokens, `element` bytes each.
  [[nodiscard]] double pairs(double element) const { return element * sequences_ * heads_ * length_ * length_; }
  /// What a norm keeps for each of `rows` beside its input: mean and reciprocal standard deviation, or the reciprocal
  /// of the root mean square.
  [[nodiscard]] double statistics(double rows) const { return rows * (llama_ ? wide_ : 2 * element_); }
  [[nodiscard]] double statistics() const { return statistics(tokens_); }
  /// Cosine and sine of rotary positions, which a stage with blocks makes once.
  [[nodiscard]] double rotary_table() const { return llama_ ? element_ * length_ * head_size_ : 0; }

  /// What keeps attention inside documents, which all blocks of a stage share.
  [[nodiscard]] double document_mask() const {
    return split_documents_ ? element_ * sequences_ * length_ * length_ : 0;
  }
  /// The same where it is kept from forward to backward: not with dropout.
  [[nodiscard]] double kept_document_mask() const { return dropout_ ? 0 : document_mask(); }

  [[nodiscard]] double flops_of_block() const {
    const double projections = 2 * query_width_ + 2 * key_width_ + (llama_ ? 3 : 2) * inner_width_;
    return 2 * tokens_ * width_ * projections + flops_of_attention();
  }
  /// Scores, and the mean of the values that they weigh.
  [[nodiscard]] double flops_of_attention() const { return 4 * sequences_ * length_ * length_ * query_width_; }
  [[nodiscard]] double flops_of_logits() const { return 2 * targets_ * width_ * vocabulary_; }
  /// The part of the logits that W makes again.
  [[nodiscard]] double share_made_again() const { return 1 - last_chunk() / targets_; }
  /// Everything before the logits, and the sentence-order head.
  [[nodiscard]] double flops_of_transform() const {
    return causal_ ? 0 : 2 * targets_ * width_ * width_ + 2 * sequences_ * width_ * (width_ + 2);
  }

  /// Whether the first linear layers read the layer's input, which they keep for W.
  [[nodiscard]] bool linear_reads_input(LayerKind kind) const { return !causal_ && kind == LayerKind::Block; }

  /// Bytes that a stage with the head keeps of the last block.
  [[nodiscard]] double dropped_output() const { return causal_ ? 0 : hidden(); }

  [[nodiscard]] double kept(LayerKind kind) const;
  /// Inputs of linear layers and the gradients of their outputs; of the embedding, the gradient of its rows.
  [[nodiscard]] double deferred(LayerKind kind) const;
  [[nodiscard]] double forward_working_set(const StageLayers& stage) const;
  [[nodiscard]] double backward_working_set(const StageLayers& stage, bool defers) const;
  [[nodiscard]] double weight_gradient_working_set(const StageLayers& stage) const;

 private:
  /// Its tokens.
  [[nodiscard]] double last_chunk() const { return static_cast<double>(chunks_.last_size()); }
  [[nodiscard]] double product(double in, double out, bool has_bias) const;
  [[nodiscard]] double weight_gradient_of_logits() const;
  [[nodiscard]] double attention_scratch() const;

  [[nodiscard]] double kept_by_embedding() const;
  [[nodiscard]] double kept_by_attention() const;
  [[nodiscard]] double kept_by_block() const;
  [[nodiscard]] double deferred_by_block() const;
  [[nodiscard]] double kept_by_head() const;
  /// What a head adds to what its stage keeps. BERT's needs of the last block's output only what it takes out of it.
  [[nodiscard]] double left_by_head() const { return kept_by_head() - dropped_output(); }
  /// With dropout products want query, key and value as one matrix a head: copies, unless there is one sequence or
  /// head.
  [[nodiscard]] bool copies_projections() const;
  [[nodiscard]] double copied_projections() const;
  [[nodiscard]] double loaded(const StageLayers& stage) const;

  bool causal_;
  bool llama_;
  bool has_query_key_norm_;
  bool has_feed_forward_bias_;
  bool dropout_;
  bool split_documents_;
  double element_;  // of hidden states
  double wide_;     // of what is computed in float32 at least
  double weight_;   // of weights and gradients
  double sequences_;
  double length_;
  double tokens_;
  TokenChunks chunks_;  // of those at which a loss is taken
  double targets_;      // how many
  double width_;
  double inner_width_;
  double vocabulary_;
  double heads_;
  double key_heads_;
  double head_size_;
  double query_width_;
  double key_width_;
};

}  // namespace chimera
