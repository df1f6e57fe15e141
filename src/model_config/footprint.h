#pragma once

// FLOPs and bytes of memory (the *footprint*) of layers and stages, computed from the sizes of a model and a Workload,
// such as the micro-batch size, without LibTorch. The formulas count the tensors that src/model keeps and allocates,
// and tests compare them with measured bytes. The planner, `chimera model` and the metrics (FLOP/s) use them. The ops
// of a stage are the forward (F), and the backward (B) or its two parts: the input-gradient op (I) and the
// weight-gradient op (W).

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "core/choices.h"
#include "model_config/model_config.h"
#include "model_config/partition.h"
#include "schedule/activations.h"

namespace chimera {

/// The embedding is everything before the first block; the head is everything after the last block, with the loss.
enum class LayerKind : std::uint8_t { Embedding, Block, Head };
inline constexpr int kLayerKinds = 3;
template <>
inline constexpr auto kNames<LayerKind> = in_order<LayerKind>("embedding", "block", "head");

/// The head computes its logits in chunks of tokens (model/linear_cross_entropy.h). Maximum number of logits in a
/// chunk, unless a single token has more: 64 MiB in float32 on the CPU. 512 MiB on a GPU, where fewer chunks save time:
/// the weight gradient of each chunk reads and writes the whole gradient of the matrix.
inline constexpr std::int64_t kLogitsOfChunk = std::int64_t{1} << 24;
inline constexpr std::int64_t kLogitsOfGpuChunk = std::int64_t{1} << 27;

/// The numbers besides the model that determine a footprint.
struct Workload {
  std::int64_t micro_batch_size = 1;  // sequences of a micro-batch
  std::int64_t sequence = 128;        // tokens of a sequence
  std::int64_t compute_bytes = 4;     // bytes per element of hidden states: float32 4, float64 8, bfloat16 2
  std::int64_t weight_bytes = 4;      // bytes per element of weights and gradients
  std::int64_t optimizer_bytes = 8;   // bytes per parameter: AdamW's two moments in float32
  std::optional<std::int64_t> matrix_optimizer_bytes = {};  // the same for matrices of blocks, if it differs (Muon)
  std::int64_t iteration_bytes = 0;                         // bytes per element in Muon's iterations; 0: no Muon
  bool dropout = false;                                     // whether the dropout probability is above 0
  bool split_documents = false;                             // attention stays inside documents
  std::int64_t logits_of_chunk = kLogitsOfChunk;            // maximum number of logits in a chunk of the head
  std::int64_t slices = 1;  // parts of the sequence, each with ops of its own; at most `sequence`; causal models only
  // T, ranks that share each layer (tensor_cut.h). A footprint then has the bytes and parameters of the first of them,
  // and the FLOPs of all together
  std::int64_t tensor_parallel = 1;
  bool cuts_tokens = true;  // whether they also divide the tokens outside of split layers, if T divides `sequence`
  friend bool operator==(const Workload&, const Workload&) = default;
};

/// Returns the workload of `chimera train` with these --dtype, --optimizer and --sequence.
[[nodiscard]] Workload workload_of(DataType dtype, OptimizerKind optimizer, std::int64_t sequence);

/// Work and memory of a layer for one micro-batch. A multiply-add counts as two FLOPs, element-wise work as zero.
struct LayerFootprint {
  std::int64_t parameters = 0;
  double forward_flops = 0;
  double input_gradient_flops = 0;  // 0 for the embedding
  double weight_gradient_flops = 0;
  double activations = 0;  // bytes kept from forward to backward, without the layer's input
  double deferred = 0;     // bytes kept from I to W for the weight gradient, without the layer's input
};

/// Returns the footprint of a layer. `level` applies only to blocks. Throws ConfigError if a size in the workload is
/// not positive, if the sequence is too long for the model's positions or sliding window, or if it has fewer tokens
/// than slices.
[[nodiscard]] LayerFootprint layer_footprint(const ModelConfig& config, LayerKind kind, const Workload& workload,
                                             RecomputeLevel level = RecomputeLevel::None);

/// Returns the fraction of a model's FLOPs, in forward and backward, that compute attention scores and weighted means
/// of values. Throws ConfigError if the sequence is too long for the model.
[[nodiscard]] double attention_share(const ModelConfig& config, std::int64_t sequence);

/// Returns [slices + 1]: the first token of each slice, and `sequence` last. Later slices attend to more tokens and are
/// shorter, so that all take about equal time (balanced_bounds() in schedule/slice_bounds.h). `attention` is the
/// fraction of an op's time that is attention. Slices start at multiples of 16 tokens if there are enough. Requires at
/// most `sequence` slices.
[[nodiscard]] std::vector<std::int64_t> balanced_slices(std::int64_t slices, std::int64_t sequence, double attention);

/// Returns [slices + 1]: the bounds as fractions of the sequence.
[[nodiscard]] std::vector<double> as_fractions(const std::vector<std::int64_t>& bounds);

/// Footprint of a stage for one micro-batch. A tensor that several layers keep counts once. The *working set* of an op
/// is the memory that it allocates and frees again while it runs.
struct StageFootprint {
  std::int64_t parameters = 0;
  double forward_flops = 0;
  double input_gradient_flops = 0;
  double weight_gradient_flops = 0;
  StageMemory memory;  // bytes that stay between ops: weights, gradients, activations, ...
  double stays = 0;    // bytes of activations that stay on the device if the stage is offloaded
  // [OpKind]: peak bytes of an op, above the bytes in use after it (F) or before it (B, I and W)
  std::array<double, kOpKinds> working_sets = {};
  [[nodiscard]] double working_set(OpKind kind) const { return working_sets[static_cast<std::size_t>(kind)]; }
  [[nodiscard]] double& working_set(OpKind kind) { return working_sets[static_cast<std::size_t>(kind)]; }
};

/// Returns the footprint of a stage, with the levels of its blocks. With slices, the working sets are for the longest
/// slice (balanced_slices). With dropout or split documents they are for the whole sequence, which is an upper bound.
/// Throws ConfigError as layer_footprint() does, for example if the sequence is too long for the model.
[[nodiscard]] StageFootprint stage_footprint(const ModelConfig& config, const StageLayers& stage,
                                             const Workload& workload);

/// Returns the bytes of the buffer in which the `copies` ranks that hold a stage gather the results of Muon's
/// iterations (engine/muon.h); 0 without Muon or for one rank.
[[nodiscard]] double gathered_bytes(const ModelConfig& config, const StageLayers& stage, const Workload& workload,
                                    std::size_t copies);

/// Consecutive chunks of `size` tokens; the last may be smaller.
struct TokenChunks {
  std::int64_t tokens = 0;
  std::int64_t size = 1;

  [[nodiscard]] std::int64_t count() const { return (tokens + size - 1) / size; }
  [[nodiscard]] std::int64_t first_token(std::int64_t chunk) const { return chunk * size; }
  [[nodiscard]] std::int64_t size_of(std::int64_t chunk) const { return std::min(size, tokens - first_token(chunk)); }
  [[nodiscard]] std::int64_t last_size() const { return tokens == 0 ? 0 : size_of(count() - 1); }
};

/// Divides `tokens` into as few chunks of about equal size as possible, each with at most `most_logits` logits (or one
/// token).
[[nodiscard]] constexpr TokenChunks chunks_of(std::int64_t tokens, std::int64_t vocabulary,
                                              std::int64_t most_logits = kLogitsOfChunk) {
  if (tokens == 0) return {};
  const std::int64_t most_tokens = std::max<std::int64_t>(1, most_logits / vocabulary);
  const std::int64_t count = (tokens + most_tokens - 1) / most_tokens;
  return {tokens, (tokens + count - 1) / count};
}

/// FLOPs of one forward of a block for one micro-batch.
struct BlockFlops {
  double all = 0;              // of the whole block
  double attention_layer = 0;  // part of `all`: the attention sub-layer, with its projections
  double attention = 0;        // part of `attention_layer`: scores and weighted means of values
};
[[nodiscard]] BlockFlops block_flops(const ModelConfig& config, const Workload& workload);

/// Returns the FLOPs of a forward and backward of the whole model for one micro-batch, as model FLOPs utilization
/// counts them (Chowdhery et al., PaLM, 2022, appendix B): work that is done again (recomputation, logits of the head)
/// does not count. Throws ConfigError as layer_footprint() does, for example if the sequence is too long for the model.
[[nodiscard]] double model_flops(const ModelConfig& config, const Workload& workload);

}  // namespace chimera
