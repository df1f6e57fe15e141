#pragma once

// Tensor parallelism in plans: T ranks share every layer of a stage, split as in Megatron-LM. These functions divide
// the part of a layer's time that the split divides by T, and add the all-reduces within its ops.
// Workload::tensor_parallel (model_config/footprint.h) divides bytes. model/tensor_parallel.h executes the split.

#include <cstdint>

#include "plan/layer_times.h"

namespace chimera {

/// Returns whether T ranks divide the tokens between split layers (sequence parallelism): Workload::cuts_tokens is set,
/// and T divides the sequence.
[[nodiscard]] bool divides_tokens(const Workload& workload, std::int64_t tensor_parallel);

/// Returns whether the profile has the seconds of exchanges inside ops (MachineProfile::op_sum) for T ranks: they were
/// measured, and T > 1 ranks fit on a node.
[[nodiscard]] bool has_op_sums(const MachineProfile& machine, std::int64_t tensor_parallel);

/// Returns the seconds of a layer's ops on each of the T ranks, without all-reduces. If the profile has a DeviceModel,
/// or a layer that was measured with this T and is as near to `model` as its nearest whole layer (has_layer_as_near()),
/// the times are layer_time() for T. Otherwise the layer's time is a constant plus a time per sequence, which follow
/// from the times of micro-batches of the workload's size and of twice this size. Only the time per sequence is divided
/// by T. The result is at least 1/T of the layer's time.
[[nodiscard]] LayerTime split_layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                         const Workload& workload, std::int64_t tensor_parallel);

/// Returns the seconds of the sums over T ranks in a layer's ops, in which no matrix products run: measured
/// (MachineProfile::op_sum), or else the seconds of all-reduces. A block all-reduces its hidden states twice in each of
/// forward, input gradient and recomputation (Shoeybi et al., arXiv 1909.08053, section 3). The embedding all-reduces
/// them once, in the forward. The head all-reduces once in the input gradient, and also 1 + T numbers per token for the
/// loss. If the ranks divide tokens, a reduce-scatter and an all-gather, each with half of its steps and bytes, replace
/// an all-reduce (Korthikanti et al., arXiv 2205.05198). A block runs both in each pass; embedding and head run one in
/// the forward and the other in the input gradient.
[[nodiscard]] LayerTime tensor_sums(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                    const Workload& workload, std::int64_t tensor_parallel);

/// Returns the seconds in which T ranks all-gather `count` matrices that they divide, for the optimizer Muon. `bytes`
/// is the total size of the whole matrices.
[[nodiscard]] double tensor_gather_seconds(const MachineProfile& machine, double bytes, double count,
                                           std::int64_t tensor_parallel);

}  // namespace chimera
