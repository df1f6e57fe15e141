#pragma once

// Tensor parallelism in plans: T workers share every layer of a stage, split as in Megatron-LM. These functions
// divide a layer's time, parameters and activations by T where the split does, and add the all-reduces within its
// ops. model/tensor_parallel.h executes the split.

#include <cstdint>

#include "plan/layer_times.h"

namespace chimera {

/// Returns whether `tensor_parallel` (T) divides the numbers of query heads and of key and value heads, and the width
/// of the feed-forward sub-layer.
[[nodiscard]] bool can_split(const ModelConfig& model, std::int64_t tensor_parallel);

/// Returns the seconds of a layer's ops on each of the T workers, without all-reduces. The layer's time is a constant
/// plus a time per sequence, which the times at b and 2b sequences give. Only the time per sequence is divided by T.
/// The result is at least 1/T of the layer's time.
[[nodiscard]] LayerTime split_layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                         const Workload& workload, std::int64_t tensor_parallel);

/// Returns the seconds of the all-reduces over T workers in a layer's ops. A block all-reduces its hidden states twice
/// in each of forward, input gradient and recomputation (Shoeybi et al., arXiv 1909.08053, section 3). The embedding
/// does so once, in the forward. The head does so once, in the input gradient, and also all-reduces three numbers per
/// token for the loss.
[[nodiscard]] LayerTime tensor_sums(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                    const Workload& workload, std::int64_t tensor_parallel);

/// Returns the number of a layer's parameters on each of the T workers: 1/T of a block's matrices and of matrices with
/// a row per vocabulary token, and all other parameters in full.
[[nodiscard]] std::int64_t parameters_per_worker(const ModelConfig& model, LayerKind kind,
                                                 std::int64_t tensor_parallel);

/// Returns whether training also divides norms, dropout and messages, by tokens (model/tensor_parallel.h).
[[nodiscard]] bool cuts_tokens(const Workload& workload, std::int64_t tensor_parallel);

/// Returns the share of a layer's activations, without attention scores, on each of the T workers. Of 34 bytes (s b h
/// (10
/// + 24 / T), Korthikanti et al., arXiv 2205.05198, section 4.2), the inputs of sub-layers, norms and masks are not
/// split. With `cuts_tokens`, only the gathered inputs of two matrices are whole, because the weight gradient needs
/// them.
[[nodiscard]] double activation_fraction(std::int64_t tensor_parallel, bool cuts_tokens);

}  // namespace chimera
