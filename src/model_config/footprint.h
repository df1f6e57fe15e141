#pragma once

#include <algorithm>
#include <cstdint>

#include "core/choices.h"
#include "model_config/config.h"
#include "model_config/partition.h"
#include "simulate/costs.h"

// What layers and stages compute and keep, by arithmetic on their sizes: nothing is allocated.
// Letters: b sequences of a micro-batch, L tokens of a sequence.

// How many logits exist at once: the loss of a large vocabulary is computed a chunk of tokens at a time.

// The tensors that layers make of one micro-batch: what footprint.cc adds up.

namespace chimera {

/// The three kinds of layers of a transformer. The embedding is all that comes before the first block, the head all
/// that comes after the last, the loss included.
enum class LayerKind : std::uint8_t { Embedding, Block, Head };
inline constexpr int kLayerKinds = 3;
template <>
inline constexpr auto kNames<LayerKind> = std::to_array<Named<LayerKind>>({{LayerKind::Embedding, "embedding"},
                                                                           {LayerKind::Block, "block"},
                                                                           {LayerKind::Head, "head"}});

/// The micro-batches that layers run on, and the types they compute in.
struct Workload {
  std::int64_t micro_batch_size = 1;  // b
  std::int64_t sequence = 128;        // L
  std::int64_t compute_bytes = 4;     // of an element of hidden states: float32 4, float64 8, bfloat16 2
  std::int64_t weight_bytes = 4;      // of an element of weights and gradients
  std::int64_t optimizer_bytes = 8;   // of optimizer state for one parameter: AdamW's two moments in float32
  bool dropout = false;               // with a probability above 0
  bool split_documents = false;       // attention stays inside documents
  friend bool operator==(const Workload&, const Workload&) = default;
};

/// The bytes of numbers that `chimera train` would have with that --dtype and --optimizer; all else as by default.
[[nodiscard]] Workload workload_of(DataType dtype, OptimizerKind optimizer);

/// One layer's work and memory for one micro-batch. A multiplication with an addition is two FLOPs; norms, activation
/// functions and other element-wise work count as nothing.
struct LayerFootprint {
  std::int64_t parameters = 0;
  double forward_flops = 0;
  double input_gradient_flops = 0;  // 0 of the embedding, which passes no gradient on
  double weight_gradient_flops = 0;
  double activations = 0;  // bytes that it keeps from forward to backward, its output included, its input not
  double deferred = 0;     // of these, those that the weight gradient needs: kept from I to W, its input not included
};

/// Throws ConfigError unless the workload's numbers are positive and `sequence` is within the model's positions.
[[nodiscard]] LayerFootprint layer_footprint(const ModelConfig& config, LayerKind kind, const Workload& workload);

/// A stage's layers together. Every tensor is counted once, whoever keeps it.
struct StageFootprint {
  std::int64_t parameters = 0;
  double forward_flops = 0;
  double input_gradient_flops = 0;
  double weight_gradient_flops = 0;
  StageMemory memory;                      // of one copy, bytes
  double forward_working_set = 0;          // most bytes that a forward takes beyond what it leaves behind
  double backward_working_set = 0;         // of a whole B: most bytes beyond those there before it
  double input_gradient_working_set = 0;   // likewise of I
  double weight_gradient_working_set = 0;  // likewise of W
  /// The working set of an op of that kind.
  [[nodiscard]] double working_set(OpKind kind) const;
};

/// Throws ConfigError as layer_footprint() does.
[[nodiscard]] StageFootprint stage_footprint(const ModelConfig& config, const StageLayers& stage,
                                             const Workload& workload);

/// Logits of a chunk at most, unless one token alone has more: 64 MiB in float32.
inline constexpr std::int64_t kLogitsOfChunk = std::int64_t{1} << 24;

/// Tokens in chunks of `size`, in their order; the last chunk may be smaller.
struct TokenChunks {
  std::int64_t tokens = 0;
  std::int64_t size = 1;

  [[nodiscard]] std::int64_t count() const { return (tokens + size - 1) / size; }
  [[nodiscard]] std::int64_t first_token(std::int64_t chunk) const { return chunk * size; }
  [[nodiscard]] std::int64_t size_of(std::int64_t chunk) const { return std::min(size, tokens - first_token(chunk)); }
  /// The size of the last chunk; 0 without tokens.
  [[nodiscard]] std::int64_t last_size() const { return tokens == 0 ? 0 : size_of(count() - 1); }
};

/// Makes as few chunks as `most_logits` allows, of about equal size. A function of the numbers of tokens and words
/// alone: the same sums in the same order for every schedule.
[[nodiscard]] constexpr TokenChunks chunks_of(std::int64_t tokens, std::int64_t vocabulary,
                                              std::int64_t most_logits = kLogitsOfChunk) {
  if (tokens == 0) return {};
  const std::int64_t most_tokens = std::max<std::int64_t>(1, most_logits / vocabulary);
  const std::int64_t count = (tokens + most_tokens - 1) / most_tokens;
  return {tokens, (tokens + count - 1) / count};
}

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
