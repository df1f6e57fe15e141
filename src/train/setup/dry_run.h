#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "core/ids.h"
#include "model_config/footprint.h"
#include "plan/machine.h"
#include "train/setup/job.h"

// --recompute (activation checkpointing): which stages keep only their input and run forward again before backward.

// What a run would do on every rank, by arithmetic: nothing is started, allocated or trained.

namespace chimera {

/// What full micro-batches of such a run ask of layers.
[[nodiscard]] Workload workload_of(const TrainOptions& options);

/// What --recompute of the job's options names: none; all stages; `auto`, those that have to so that every worker fits
/// in --memory GiB, by the bytes that planning counts (plan/worker_memory.h); or those listed. Throws ConfigError for a
/// stage that the job does not have, for `auto` without --memory, and where not even recomputing all stages fits.
[[nodiscard]] std::set<StageId> recomputed_stages(const Job& job);

/// A stage as one rank holds it, for a replica.
struct HeldStage {
  ReplicaId replica;
  StageId stage;
};

/// What one rank would hold and do. Bytes and seconds are those of the machine profile's model.
struct RankForecast {
  RankId rank;
  GroupWorker place;                   // which worker of which group
  std::vector<HeldStage> stages = {};  // by replica, then stage
  std::int64_t parameters = 0;         // those that it trains, each once
  double weights_bytes = 0;            // one version of them
  double gradients_bytes = 0;
  double optimizer_bytes = 0;
  double peak_memory_bytes = 0;  // with activations, messages and an op's working set
  double compute_seconds = 0;    // of its ops and its update, in a step
  double bubble_ratio = 0;       // the part of the step in which it does not compute
};

struct Forecast {
  std::string machine;                         // where the times come from
  double step_seconds = 0;                     // predicted
  double bubble_ratio = 0;                     // of all ranks
  double memory_bytes = 0;                     // that a rank has on the machine
  std::vector<std::int64_t> stage_parameters;  // [stage] of one copy
  std::vector<RankForecast> ranks;
};

/// A profile of this machine made up for want of a measured one: layers take the time of their FLOPs at the speed of a
/// matrix product, which is measured here in a few milliseconds; messages and updates that of memory copies at 4 GB/s.
[[nodiscard]] MachineProfile assumed_machine(const Job& job);

/// Simulates a step of the job, of which options, model, schedule, partition and ranks count, on that machine.
/// Throws ConfigError where the profile does not cover the model.
[[nodiscard]] Forecast forecast(const Job& job, const MachineProfile& machine);

}  // namespace chimera
