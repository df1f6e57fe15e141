#pragma once

// Work and memory of layers and stages, computed from the sizes of a model and a workload, without LibTorch. The
// formulas count the tensors that src/model keeps and allocates, and tests compare them with measured bytes. The
// planner, `chimera model` and the metrics (FLOP/s) use them. Letters: b sequences of a micro-batch, L tokens of a
// sequence; the ops of a stage are forward (F), backward (B), or its parts, the input-gradient op (I) and the
// weight-gradient op (W).

#include <algorithm>
#include <cstdint>
#include <vector>

#include "core/choices.h"
#include "model_config/model_config.h"
#include "model_config/partition.h"
#include "simulate/costs.h"

namespace chimera {

/// The embedding is everything before the first block; the head is everything after the last block, with the loss.
enum class LayerKind : std::uint8_t { Embedding, Block, Head };
inline constexpr int kLayerKinds = 3;
template <>
inline constexpr auto kNames<LayerKind> = std::to_array<Named<LayerKind>>({{LayerKind::Embedding, "embedding"},
                                                                           {LayerKind::Block, "block"},
                                                                           {LayerKind::Head, "head"}});

/// Maximum number of logits in a chunk of the head, unless one token has more: on the CPU 64 MiB in float32, on a GPU
/// 512 MiB, since the weight gradient of each chunk reads and writes the whole gradient of the head's matrix.
inline constexpr std::int64_t kLogitsOfChunk = std::int64_t{1} << 24;
inline constexpr std::int64_t kLogitsOfGpuChunk = std::int64_t{1} << 27;

struct Workload {
  std::int64_t micro_batch_size = 1;  // b
  std::int64_t sequence = 128;        // L
  std::int64_t compute_bytes = 4;     // bytes per element of hidden states: float32 4, float64 8, bfloat16 2
  std::int64_t weight_bytes = 4;      // bytes per element of weights and gradients
  std::int64_t optimizer_bytes = 8;   // bytes per parameter: AdamW's two moments in float32
  bool dropout = false;               // probability above 0
  bool split_documents = false;       // attention stays inside documents
  std::int64_t logits_of_chunk = kLogitsOfChunk;
  bool recompute_attention =
      false;                // blocks keep nothing of their attention sub-layer; the input-gradient op runs it again
  std::int64_t slices = 1;  // k, at most L: an op runs a slice of the sequence; causal models only
  friend bool operator==(const Workload&, const Workload&) = default;
};

/// Returns the element sizes of `chimera train` with these --dtype and --optimizer.
[[nodiscard]] Workload workload_of(DataType dtype, OptimizerKind optimizer);

/// Work and memory of a layer for one micro-batch. A multiply-add counts as two FLOPs, element-wise work as zero.
struct LayerFootprint {
  std::int64_t parameters = 0;
  double forward_flops = 0;
  double input_gradient_flops = 0;  // 0 for the embedding
  double weight_gradient_flops = 0;
  double activations = 0;  // bytes kept from forward to backward, without its input
  double deferred = 0;     // bytes kept from I to W for the weight gradient, without its input
};

/// Returns the sizes and FLOPs of a layer. Throws ConfigError unless the workload's numbers are positive, `sequence`
/// fits the model's positions and sliding window, and has a token for each slice.
[[nodiscard]] LayerFootprint layer_footprint(const ModelConfig& config, LayerKind kind, const Workload& workload);

/// Returns attention's part of a model's FLOPs in forward and backward: scores and weighted means of values. Throws
/// ConfigError as layer_footprint() does.
[[nodiscard]] double attention_share(const ModelConfig& config, std::int64_t sequence);

/// Returns [k + 1]: first token of each slice, and `sequence`. Slices take about equal times (balanced_bounds) and
/// start at multiples of 16 tokens if these suffice. Requires at most `sequence` slices.
[[nodiscard]] std::vector<std::int64_t> balanced_slices(std::int64_t slices, std::int64_t sequence, double attention);

/// Returns [k + 1]: the bounds as fractions of the sequence.
[[nodiscard]] std::vector<double> as_fractions(const std::vector<std::int64_t>& bounds);

/// Work and memory of a stage. Tensors that several layers keep count once.
struct StageFootprint {
  std::int64_t parameters = 0;
  double forward_flops = 0;
  double input_gradient_flops = 0;
  double weight_gradient_flops = 0;
  StageMemory memory;                      // bytes of a replica
  double stays = 0;                        // bytes of the activations that offloading leaves on the device
  double forward_working_set = 0;          // peak bytes of a forward beyond those it leaves
  double backward_working_set = 0;         // peak bytes of a B beyond those before it
  double input_gradient_working_set = 0;   // working set of I
  double weight_gradient_working_set = 0;  // working set of W
  [[nodiscard]] double working_set(OpKind kind) const;
};

/// Returns the sizes and FLOPs of a stage. Working sets are those of the longest slice (balanced_slices), or with
/// dropout or split documents of the whole sequence, an upper bound. Throws ConfigError as layer_footprint() does.
[[nodiscard]] StageFootprint stage_footprint(const ModelConfig& config, const StageLayers& stage,
                                             const Workload& workload);

/// Consecutive chunks of `size` tokens; the last may be smaller.
struct TokenChunks {
  std::int64_t tokens = 0;
  std::int64_t size = 1;

  [[nodiscard]] std::int64_t count() const { return (tokens + size - 1) / size; }
  [[nodiscard]] std::int64_t first_token(std::int64_t chunk) const { return chunk * size; }
  [[nodiscard]] std::int64_t size_of(std::int64_t chunk) const { return std::min(size, tokens - first_token(chunk)); }
  [[nodiscard]] std::int64_t last_size() const { return tokens == 0 ? 0 : size_of(count() - 1); }
};

/// Returns as few chunks as `most_logits` allows, of about equal size.
[[nodiscard]] constexpr TokenChunks chunks_of(std::int64_t tokens, std::int64_t vocabulary,
                                              std::int64_t most_logits = kLogitsOfChunk) {
  if (tokens == 0) return {};
  const std::int64_t most_tokens = std::max<std::int64_t>(1, most_logits / vocabulary);
  const std::int64_t count = (tokens + most_tokens - 1) / most_tokens;
  return {tokens, (tokens + count - 1) / count};
}

/// FLOPs of one forward of a block, and of its parts.
struct BlockFlops {
  double all = 0;
  double attention_layer = 0;  // the attention sub-layer: projections, scores and weighted means of values
  double attention = 0;        // scores and weighted means of values
};
[[nodiscard]] BlockFlops block_flops(const ModelConfig& config, const Workload& workload);

/// Returns the FLOPs of a forward and backward of the whole model for one micro-batch, as in model FLOPs utilization
/// (Chowdhery et al., PaLM, 2022, appendix B). Repeated products (recomputation, head) do not count. Throws ConfigError
/// as layer_footprint() does.
[[nodiscard]] double model_flops(const ModelConfig& config, const Workload& workload);

}  // namespace chimera
