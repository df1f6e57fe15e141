#pragma once

// Hashes of weights and optimizer state, for two purposes. ReplicaCheck compares the replicas of a stage with
// hash_bytes(); on a GPU it uses tensor operations, so that no weights are copied to the host. parameters_hash() is a
// hash of the whole model for the metrics of a run with --reduction canonical (a fixed order of additions). It is the
// same for all schedules, numbers of stages and groups, and devices. For this it hashes bytes with XXH3, which runs on
// the CPU only, so weights on a GPU are copied to the host.

#include "model/parameter_group.h"
#include "model_config/tensor_cut.h"
#include "transport/transport.h"

namespace chimera {

/// Functions that are called during a hash of many tensors; may be empty.
struct HashHooks {
  std::function<void()> after_tensor = {};
  std::function<void()> before_wait = {};  ///< On a device: called before the host waits for the device, once
};

/// Returns a hash of all tensors in order: XXH3 on the CPU, element_hash() on a device. Compare only hashes from the
/// same kind of device.
[[nodiscard]] std::uint64_t hash_bytes(std::span<const at::Tensor> tensors, const HashHooks& hooks = {});

/// Returns a hash of all tensors in order, computed by tensor operations on their common device. It is equal on every
/// kind of device. Any change of a single element changes it.
[[nodiscard]] std::uint64_t element_hash(std::span<const at::Tensor> tensors, const HashHooks& hooks = {});

/// Returns the upper and the lower 32 bits of a hash. As doubles they are exact, so Transport::all_sum() can send them:
/// one rank contributes the hash, and the others zeros.
[[nodiscard]] inline std::pair<double, double> hash_halves(std::uint64_t hash) {
  return {static_cast<double>(hash >> 32U), static_cast<double>(hash & 0xffffffffU)};
}

/// Returns the hash of all parameters of the model, the same on every rank: XXH3 (16 hexadecimal digits) over the
/// hashes of the parameters in the order of `names`, the ascending names of all parameters. All ranks call it. `own`
/// are the parameter groups that this rank contributes: exactly one rank contributes each parameter or, if T ranks
/// share its layer, each of the T ranks does. `place` is the place of this rank among these T ranks ({}: T is 1); the
/// hash depends on T. Calls note_more_progress() (launch/flight/progress.h) after each parameter.
[[nodiscard]] std::string parameters_hash(const std::vector<std::string>& names,
                                          const std::vector<const ParameterGroup*>& own, Transport& transport,
                                          const TensorPlace& place = {});

}  // namespace chimera
