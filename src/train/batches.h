#pragma once
// Samples as tensors: the micro-batch that a stage reads.

#include "data/samples.h"
#include "model/stage.h"
#include "model_config/config.h"

namespace chimera {

/// The samples that one micro-batch takes from its step.
struct BatchPlace {
  std::int64_t step = 0;        // from 0
  std::int64_t first = 0;       // index of its first sample in the step
  std::int64_t size = 1;        // b
  std::int64_t mini_batch = 1;  // samples of the step
};

/// Tokens, targets, masks and loss scales of a micro-batch, [b, L] each. The scales are 1 over the target tokens and
/// over the sequences of the whole step.
[[nodiscard]] MicroBatch make_micro_batch(const Samples& samples, Family family, const BatchPlace& place);

/// The micro-batch with its tensors on `device`: the same ones on the CPU, copies through pinned memory elsewhere,
/// which the calling thread's current stream makes without being waited for.
[[nodiscard]] MicroBatch on_device(MicroBatch batch, at::Device device);

}  // namespace chimera
