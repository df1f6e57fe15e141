#pragma once
// Operator (tensor) parallelism in a plan: T workers share every layer of a stage, as Megatron-LM splits it.

#include <cstdint>

#include "plan/candidate.h"

namespace chimera {

/// Whether T workers can share the model's layers: T divides its heads (those of keys and values, too) and the width of
/// the feed-forward sub-layer.
[[nodiscard]] bool can_split(const ModelConfig& model, std::int64_t tensor_parallel);

/// Seconds that each of the T workers takes for its share of one layer's ops, sums between them apart. What a layer
/// takes for each sequence more is divided by T; what it takes for any number of them (the profile between b and 2b,
/// drawn back to 0) is not. So no less than a T-th, and no more than the whole.
[[nodiscard]] LayerTime split_layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                         const Workload& workload, std::int64_t tensor_parallel);

/// Seconds of the sums over the T workers within one layer's ops, during which they wait: a block sums its hidden
/// states twice forward and twice for the gradient of its input (Shoeybi et al., arXiv 1909.08053, section 3), and
/// twice more where its forward runs again; the embedding once forward; the head once for its gradient, and its loss
/// three numbers for each token.
[[nodiscard]] LayerTime tensor_sums(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                    const Workload& workload, std::int64_t tensor_parallel);

/// Parameters of one layer that each of the T workers holds: a T-th of the matrices of a block and of those with a row
/// for each token of the vocabulary, and all of the others.
[[nodiscard]] std::int64_t held_parameters(const ModelConfig& model, LayerKind kind, std::int64_t tensor_parallel);

/// The share of a layer's activations, attention's scores apart, that each of the T workers keeps: inputs of the two
/// sub-layers and of their norms, and masks, are whole: 10 of 34 bytes (Korthikanti et al., arXiv 2205.05198, section
/// 4.2: s b h (10 + 24 / T)).
[[nodiscard]] double held_activations(std::int64_t tensor_parallel);

}  // namespace chimera
