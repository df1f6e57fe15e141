#pragma once

// Forecast of a run for `chimera train --dry-run`, which prints it instead of training. forecast() simulates one step
// of the job on a MachineProfile, and returns the step time and the memory and idle time of every rank. The profile is
// the file of --machine. By default, it is a profile of H100s if the job uses GPUs, else the estimate of
// assumed_machine().

#include "core/ids.h"
#include "model_config/footprint.h"
#include "plan/machine.h"
#include "train/setup/job.h"

namespace chimera {

/// A stage that a rank holds, of one replica of the model.
struct HeldStage {
  ReplicaId replica;
  StageId stage;
};

/// Forecast of one rank. Times are in seconds on the machine of the profile.
struct RankForecast {
  RankId rank;
  GroupWorker place;                   // Data-parallel group and worker
  std::vector<HeldStage> stages = {};  // Sorted by replica, then stage
  std::int64_t parameters = 0;         // Trained parameters, each counted once
  double weights_bytes = 0;            // One weight version
  double gradients_bytes = 0;
  double optimizer_bytes = 0;
  double peak_memory_bytes = 0;  // Includes activations, messages, an op's temporary tensors, and `reserved`
  double compute_seconds = 0;    // In ops, slowed down by ranks on the same cores
  double bubble_ratio = 0;       // Fraction of the step in which the rank runs no op, as in a sum or update
};

/// Forecast of a step of all ranks.
struct Forecast {
  std::string machine;  // Source of the times
  double step_seconds = 0;
  double bubble_ratio = 0;        // Mean over all ranks
  double memory_bytes = 0;        // Machine memory per rank; 0: not known
  ReservedBytes reserved = {};    // Bytes without tensors (CUDA, NCCL), part of every rank's peak
  std::int64_t shared_cores = 0;  // Cores that more ranks share; 0: each rank has its own
  std::vector<RankForecast> ranks;
  std::vector<std::vector<double>> op_seconds = {};  // [stage][op kind], of a micro-batch; empty with slices

  bool shares_memory = false;               // All ranks have the memory of this machine together
  [[nodiscard]] double peak_bytes() const;  // Of the rank with the most
  [[nodiscard]] double mean_bytes() const;  // Of a rank
  /// Returns whether the memory suffices; true if it is not known.
  [[nodiscard]] bool fits() const {
    return memory_bytes <= 0 || (shares_memory ? mean_bytes() : peak_bytes()) <= memory_bytes;
  }
};

/// Returns a clause with the parts of the rank's predicted memory, the largest first: `by the plan, rank 2 holds
/// weights 3 GiB, ...`.
[[nodiscard]] std::string holders_text(const RankForecast& rank, const ReservedBytes& reserved);

/// Returns an estimated profile of a machine with a core per rank. A layer's time is its FLOPs divided by `speed`
/// (FLOP/s of a rank). Messages, all-reduces and optimizer steps are assumed to move 4 GB/s.
[[nodiscard]] MachineProfile machine_at(double speed, const JobShape& job, const TrainOptions& options);
/// Returns such a profile of this machine, with its cores and memory. `speed` is in FLOP/s of a core; 0: measures the
/// speed of a matrix product.
[[nodiscard]] MachineProfile assumed_machine(const JobShape& job, const TrainOptions& options, double speed = 0);

/// Simulates one step of the job on `machine`. Uses only options, model, schedule, partition and ranks. Throws
/// ConfigError if the profile does not cover the model.
[[nodiscard]] Forecast forecast(const Job& job, const MachineProfile& machine);

}  // namespace chimera
