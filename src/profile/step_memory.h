#pragma once
// What one training step of a schedule needs beside weights, gradients and optimizer states.

#include <cstdint>
#include <vector>

#include "model_config/config.h"
#include "passes/lower.h"
#include "schedule/schedule.h"

namespace chimera::benchmarks {

/// Sizes of a micro-batch, [b, L].
struct BatchSize {
  std::int64_t sequences = 2;
  std::int64_t tokens = 64;
};

/// How the ranks, always threads of this process here, exchange tensors.
enum class Exchange {
  ByReference,  // as `--transport threads` does: a message is the sender's memory
  OverGloo,     // as processes do: the receiver has memory of its own
};

/// Bytes of one worker.
struct StepMemory {
  std::int64_t peak_bytes = 0;   // most alive at once during the step
  std::int64_t after_bytes = 0;  // still alive after it
};

/// Runs one step of the schedule, or the `lowering.steps` of an unrolled one, on a GPT-2 model cut evenly, and counts
/// what each worker's thread allocates: copies of weights too. The optimizer does nothing. Returns one entry for each
/// worker. Throws TransportError where Gloo cannot connect.
[[nodiscard]] std::vector<StepMemory> measure_step_memory(const Schedule& schedule, const ModelConfig& model,
                                                          const BatchSize& size, Exchange exchange,
                                                          const LoweringOptions& lowering = {});

}  // namespace chimera::benchmarks
