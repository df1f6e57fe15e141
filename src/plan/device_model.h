#pragma once

// Times of layers on a device from a few numbers (DeviceModel in machine.h) instead of measurements. A layer's kernels
// are products of matrices, attention, and kernels that only move bytes. The host launches them, so an op takes at
// least the host's time.

#include "plan/machine.h"

namespace chimera {

/// Seconds of one rank's kernels in an op.
struct KernelSeconds {
  double products = 0;
  double attention = 0;  // scores and weighted means of values
  double bytes = 0;      // memory traffic of all other kernels
  double launches = 0;   // by which launching takes the host longer than running takes the device
  [[nodiscard]] double all() const { return products + attention + bytes + launches; }
  KernelSeconds& operator+=(const KernelSeconds& other);
};

/// Seconds of a layer's ops on one of T ranks, without sums over ranks.
struct DeviceTime {
  KernelSeconds forward = {};
  KernelSeconds input_gradient = {};
  KernelSeconds weight_gradient = {};
};

/// Returns the time of a layer, for all slices of a micro-batch's tokens together. The machine must have a DeviceModel
/// (MachineProfile::has_device()).
///
/// A product of m x k and k x n matrices runs at a fraction of the peak that is smaller for small m, k or n
/// (DeviceModel::product_size). Attention of causal models skips half of the scores, and its backward has five
/// products for two of the forward. In the forward, a block moves three times the bytes that it keeps, in the input
/// gradient four times, in the weight gradient once; the head moves 30 bytes per logit.
[[nodiscard]] DeviceTime device_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                     const Workload& workload, std::int64_t tensor_parallel);

/// Returns the seconds of a micro-batch's forward and backward through the whole model.
[[nodiscard]] KernelSeconds kernel_seconds(const MachineProfile& machine, const ModelConfig& model,
                                           const Workload& workload, std::int64_t tensor_parallel);

}  // namespace chimera
