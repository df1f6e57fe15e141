#pragma once
// Samples as tensors: the micro-batch that a stage reads.

#include "data/sample_prefetcher.h"
#include "data/samples.h"
#include "model/stage.h"
#include "model_config/config.h"

namespace chimera {

/// Tokens, targets, masks and loss scales of a micro-batch, [b, L] each. The scales are 1 over the target tokens and
/// over the sequences of the whole step.
[[nodiscard]] MicroBatch make_micro_batch(const Samples& samples, Family family, const BatchPlace& place);
/// A micro-batch of these samples, in a step of `mini_batch` samples that have `targets_per_sample` each.
[[nodiscard]] MicroBatch make_micro_batch(const std::vector<Sample>& samples, Family family,
                                          std::int64_t targets_per_sample, std::int64_t mini_batch);

/// The micro-batch as on_device() wants it for `device`: for the CPU itself, else copies in pinned memory.
[[nodiscard]] MicroBatch ready_for(MicroBatch batch, at::Device device);
/// The micro-batch with its tensors on `device`: the same ones on the CPU, copies elsewhere. From pinned memory the
/// calling thread's current stream makes them without being waited for.
[[nodiscard]] MicroBatch on_device(MicroBatch batch, at::Device device);

}  // namespace chimera
