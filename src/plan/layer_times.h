#pragma once

// Seconds of a layer's ops on a machine. A machine profile has times of a few layers at a few micro-batch sizes. These
// functions derive the times of every other layer: they find the nearest measured layer, interpolate its times to the
// number of tokens, and scale them by the ratio of FLOPs. stage_model.h adds the times of layers to times of stages.
//
// With tensor parallelism, T ranks share every layer of a stage, split as in Megatron-LM: the part of a layer's time
// that the split divides is divided by T, and all-reduces within its ops are added. Workload::tensor_parallel
// (model_config/footprint.h) divides bytes. model/tensor_parallel.h executes the split.

#include "plan/machine.h"

namespace chimera {

/// FLOPs of float32 matrix products that a CPU core computes in the time in which it moves a byte: about 100 GFLOP/s
/// and 10 GB/s.
inline constexpr double kFlopsPerByteOfCpu = 10;

/// Returns the time of a micro-batch of `size` samples. Interpolates linearly between the measured sizes `times`, and
/// extrapolates beyond them from the nearest two. If only one size was measured, the time is proportional to the size.
/// LayerTime::spread is taken from the nearest size. Requires at least one time.
[[nodiscard]] LayerTime interpolate_time(const std::vector<LayerTime>& times, double size);

/// Returns seconds of a layer's ops, interpolated as interpolate_time() does. If the profile has a DeviceModel and no
/// layers, the times are those of device_time(); if it has both, those of the nearest layer, scaled by the ratio of
/// device_time() of both.
///
/// If the profile has neither a DeviceModel nor a layer with the sizes of `model`, scales the times of the nearest
/// layer of this kind at the same number of tokens, by the ratios of FLOPs and of element sizes. Ops without FLOPs,
/// such as the embedding's, use the ratio of the hidden states' sizes instead. Attention's memory traffic
/// (score_traffic()) scales separately, by heads and the squared sequence length. With slices, the result is the time
/// of all slices together. Considers only layers that were measured with `tensor_parallel` (T), or with a DeviceModel
/// also whole ones; the result is the time of one of T ranks. Throws ConfigError if the profile has no such layer of
/// this kind.
[[nodiscard]] LayerTime layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                   const Workload& workload, std::int64_t tensor_parallel = 1);

/// Returns the bytes that a rank moves to make a block's tensors of RecomputeLevel::Cheap again.
[[nodiscard]] double cheap_bytes(const ModelConfig& model, const Workload& workload);

/// Returns the time that a block's backward takes longer at `level`, if the whole forward takes `whole` again. Bytes
/// move at the profile's memory_bandwidth, or at kFlopsPerByteOfCpu beside the forward's FLOPs.
[[nodiscard]] double recompute_seconds(const MachineProfile& machine, const ModelConfig& model,
                                       const Workload& workload, RecomputeLevel level, double whole);

/// Returns whether the profile has a layer, measured with this T, whose sizes are as near to the model's as those of
/// the nearest layer measured with T = 1.
[[nodiscard]] bool has_layer_as_near(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                     const Workload& workload, std::int64_t tensor_parallel);

/// Returns the fraction, 0 to 1, of the time of a whole micro-batch (forward and backward of the whole model) that is
/// attention. Attention's time is that of its FLOPs and of the memory traffic of its scores. Throws ConfigError as
/// layer_time() does.
[[nodiscard]] double attention_time_share(const MachineProfile& machine, const ModelConfig& model,
                                          const Workload& workload);

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
