#pragma once
// What layers and stages compute and keep, by arithmetic on their sizes: nothing is allocated.
// Letters: b sequences of a micro-batch, L tokens of a sequence.

#include <cstdint>

#include "core/choices.h"
#include "model_config/config.h"
#include "model_config/partition.h"
#include "simulate/costs.h"

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

}  // namespace chimera
