#pragma once
// Bytes of tensors over a step of real training, beside the simulator's.

#include <cstdint>
#include <vector>

#include "simulate/costs.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera::benchmarks {

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
