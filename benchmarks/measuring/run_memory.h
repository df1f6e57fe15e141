#pragma once

#include <cstdint>
#include <vector>

#include "model_config/config.h"
#include "passes/lower.h"
#include "schedule/schedule.h"
#include "simulate/costs.h"
#include "train/setup/job.h"
#include "transport/transport.h"

// Compares tensor memory of real training steps with the simulator.

namespace chimera::benchmarks {

/// [b, L]
struct BatchSize {
  std::int64_t sequences = 2;
  std::int64_t tokens = 64;
};

enum class Exchange {
  ByReference,  // a message is the sender's memory
  OverGloo,     // the receiver has its own memory
};

struct StepMemory {
  std::int64_t peak_bytes = 0;
  std::int64_t after_bytes = 0;
};

/// Runs a step of the schedule, or the `lowering.steps` of an unrolled schedule, on an evenly cut GPT-2 model with a
/// thread per rank. Counts allocations, including weight copies; the optimizer does nothing. Returns [worker]. Throws
/// TransportError if Gloo cannot connect.
[[nodiscard]] std::vector<StepMemory> measure_step_memory(const Schedule& schedule, const ModelConfig& model,
                                                          const BatchSize& size, Exchange exchange,
                                                          const LoweringOptions& lowering = {});

/// Bytes during an op, without its working set (measured: the larger of before and after), and peaks.
struct OpMemory {
  Op op;
  double measured = 0;
  double simulated = 0;
  double measured_peak = 0;
  double simulated_peak = 0;  // `simulated` plus the mean working set of such ops
};

struct WorkerMemory {
  double kept = 0;  // weights, gradients, optimizer state
  std::vector<OpMemory> ops;

  /// Returns the largest relative difference of bytes.
  [[nodiscard]] double largest_deviation() const;
  [[nodiscard]] const OpMemory& worst() const;
  [[nodiscard]] double measured_peak() const;
  [[nodiscard]] double simulated_peak() const;
};

/// Source of the simulator's sizes: the run, or model_config/footprint.h.
enum class Sizes : std::uint8_t { Measured, Derived };

/// Trains the job as this rank, counts all tensors, and compares the last step with explain() of a simulation with
/// measured stage times. Collective; all ranks get the result [worker] of group 0.
[[nodiscard]] std::vector<WorkerMemory> compare_memory(const Job& job, RankId rank, Transport& transport,
                                                       Sizes sizes = Sizes::Measured);

}  // namespace chimera::benchmarks
