#pragma once

// The job, rank, worker, data-parallel group, device and transport of one rank. All members of Trainer (loader, model,
// comparison of replicas, replacement of ranks, validation, checkpoints) need them. RankContext holds them once, and
// the members borrow it.

#include <ATen/core/Tensor.h>
#include <optional>

#include "engine/canonical.h"
#include "schedule/rank_layout.h"
#include "train/setup/device.h"
#include "train/setup/job.h"
#include "transport/forwarding_transport.h"
#include "transport/transport.h"

namespace chimera {

/// Borrows the job and its connections. It cannot be copied or moved, because members of Trainer refer to it.
struct RankContext {
  RankContext(const Job& own_job, RankId own_rank, Transport& connections)
      : job(own_job),
        rank(own_rank),
        place(job.run.ranks.place(rank)),
        device(device_of(job.options, rank)),
        kernels(job.canonical.has_value()),
        verified(job.options.verify_messages ? std::optional<VerifiedMessages>(connections) : std::nullopt),
        transport(verified ? static_cast<Transport&>(*verified) : connections) {}
  RankContext(const RankContext&) = delete;
  RankContext& operator=(const RankContext&) = delete;

  const Job& job;
  const RankId rank;
  const GroupWorker place;  // Data-parallel group and worker of the schedule
  const at::Device device;
  const DeterministicKernels kernels;        // On for canonical reduction, as long as the rank trains
  std::optional<VerifiedMessages> verified;  // Adds checksums, with --verify-messages
  Transport& transport;                      // `verified`, or the job's connections
};

}  // namespace chimera
