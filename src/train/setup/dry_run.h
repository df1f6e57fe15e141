#pragma once

// Forecast of a run (--dry-run): the simulator's step time, and the memory of every rank, from a machine profile or
// from an assumed one. No training starts, and training does not use it.

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/ids.h"
#include "model_config/footprint.h"
#include "plan/machine.h"
#include "train/setup/job.h"

namespace chimera {

struct HeldStage {
  ReplicaId replica;
  StageId stage;
};

/// Forecast of one rank, in bytes and seconds of the machine profile.
struct RankForecast {
  RankId rank;
  GroupWorker place;
  std::vector<HeldStage> stages = {};  // Sorted by replica, then stage
  std::int64_t parameters = 0;         // Trained parameters, each counted once
  double weights_bytes = 0;            // One weight version
  double gradients_bytes = 0;
  double optimizer_bytes = 0;
  double peak_memory_bytes = 0;  // Includes activations, messages and an op's working set
  double compute_seconds = 0;    // In ops, slowed down by ranks on the same cores
  double bubble_ratio = 0;       // Idle fraction of the step, with all-reduces and updates
};

struct Forecast {
  std::string machine;  // Source of the times
  double step_seconds = 0;
  double bubble_ratio = 0;                     // Mean over all ranks
  double memory_bytes = 0;                     // Machine memory per rank
  std::vector<std::int64_t> stage_parameters;  // [stage], one copy
  std::vector<RankForecast> ranks;

  [[nodiscard]] double peak_bytes() const;  // Of the rank with the most
  [[nodiscard]] bool fits() const { return memory_bytes <= 0 || peak_bytes() <= memory_bytes; }
};

/// Returns an estimated machine profile. Layers take their FLOPs at the speed of a matrix product, measured in a few
/// milliseconds; messages and updates run at 4 GB/s.
[[nodiscard]] MachineProfile assumed_machine(const Job& job);

/// Simulates one step of the job on `machine`. Uses only options, model, schedule, partition and ranks. Throws
/// ConfigError if the profile does not cover the model.
[[nodiscard]] Forecast forecast(const Job& job, const MachineProfile& machine);

}  // namespace chimera
