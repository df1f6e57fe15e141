#pragma once

#include <cstdint>
#include <vector>

#include "model_config/config.h"
#include "passes/lower.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"
#include "train/setup/job.h"
#include "transport/transport.h"

// What one training step of a schedule needs beside weights, gradients and optimizer states.

// Bytes of tensors over a step of real training, beside the simulator's.

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

/// What a worker holds while an op runs, in bytes: without what the op itself takes and gives back (measured: the
/// larger of before and after it), and at most.
struct OpMemory {
  Op op;
  double measured = 0;
  double simulated = 0;
  double measured_peak = 0;
  double simulated_peak = 0;  // with the op's working set: what such an op, on the mean, takes and gives back
};

struct WorkerMemory {
  double kept = 0;            // weights, gradients, optimizer state: what the worker holds between steps
  std::vector<OpMemory> ops;  // in order

  /// Largest difference of measured and simulated bytes over the ops, as a share of the simulated ones.
  [[nodiscard]] double largest_deviation() const;
  [[nodiscard]] const OpMemory& worst() const;
  [[nodiscard]] double measured_peak() const;
  [[nodiscard]] double simulated_peak() const;
};

/// Where the simulator's sizes of stages come from: the measured run itself, or model_config/footprint.h.
enum class Sizes : std::uint8_t { Measured, Derived };

/// Trains the job as this rank, in a process of its own, counting every tensor from the model's weights on, and
/// compares the last step with explain() of what simulate() finds for the measured times of each stage and its sizes.
/// All ranks call it together; all get all: [worker], of group 0.
[[nodiscard]] std::vector<WorkerMemory> compare_memory(const Job& job, RankId rank, Transport& transport,
                                                       Sizes sizes = Sizes::Measured);

}  // namespace chimera::benchmarks
