#pragma once

// Seconds of a layer's ops on a machine. A profile has times of a few layers at a few micro-batch sizes. These
// functions derive the times of every other layer: first the nearest measured layer is found, then its times are
// interpolated to the number of tokens, then they are scaled by the ratio of FLOPs. The stage model adds layers up to
// stages, and the tensor-parallel model divides them.

#include <vector>

#include "plan/machine.h"

namespace chimera {

/// Returns the time of a micro-batch of `size` samples: linear between measured sizes, extrapolated along the nearest
/// two, or in proportion to a single size. `spread` comes from the nearest size. Requires at least one time.
[[nodiscard]] LayerTime time_at(const std::vector<LayerTime>& times, double size);

/// Returns seconds of a layer's ops, interpolated as time_at() does.
///
/// If these sizes were not measured, scales the nearest layer of the kind at the same number of tokens. Factors are the
/// ratios of FLOPs and of element sizes. Ops without FLOPs, such as the embedding's, use the ratio of hidden states.
/// Attention's memory traffic (score_traffic) scales separately, by heads and the squared sequence length. Slices take
/// the time of as many ops with fewer tokens, all together. `spread` comes from the nearest micro-batch size. Throws
/// ConfigError if the profile has no layer of the kind.
[[nodiscard]] LayerTime layer_time(const MachineProfile& machine, const ModelConfig& model, LayerKind kind,
                                   const Workload& workload);

/// Returns attention's part of the time of whole micro-batches, forward and backward: of the FLOPs, and the memory
/// traffic of scores. Throws ConfigError as layer_time() does.
[[nodiscard]] double attention_time_share(const MachineProfile& machine, const ModelConfig& model,
                                          const Workload& workload);

}  // namespace chimera
