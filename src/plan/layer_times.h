#pragma once

// Seconds of a layer's ops on a machine. A machine profile has times of a few layers at a few micro-batch sizes. These
// functions derive the times of every other layer: they find the nearest measured layer, interpolate its times to the
// number of tokens, and scale them by the ratio of FLOPs. stage_model.h adds the times of layers to times of stages,
// and tensor_parallel.h divides them among workers.

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

}  // namespace chimera
