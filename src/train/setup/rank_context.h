#pragma once

// The job, rank, worker, data-parallel group, device and transport of one rank. All members of Trainer (loader, model,
// comparison of replicas, replacement of ranks, validation, checkpoints) need them. RankContext holds them once, and
// the members borrow it.

#include "engine/canonical.h"
#include "engine/tensor_ranks.h"
#include "schedule/rank_layout.h"
#include "train/setup/device.h"
#include "train/setup/job.h"
#include "transport/forwarding_transport.h"
#include "transport/transport.h"

namespace chimera {

/// The context of one rank. Borrows the job and its connections. It cannot be copied or moved, because members of
/// Trainer refer to it.
struct RankContext {
  RankContext(const Job& own_job, RankId own_rank, Transport& connections)
      : job(own_job),
        world_rank(own_rank),
        rank(job.ranks().in_lane(own_rank)),
        place(job.run.ranks.place(rank)),
        device(device_of(job.options, job.launched_rank(own_rank))),
        kernels(job.canonical.has_value()),
        tensor(tensor_group(job, own_rank, connections)),
        lane(tensor ? std::make_unique<LaneTransport>(connections, job.ranks(), tensor->place().rank) : nullptr),
        verified(job.options.recovery.verify_messages ? std::optional<VerifiedMessages>(lane ? *lane : connections)
                                                      : std::nullopt),
        transport(verified ? *verified
                  : lane   ? *lane
                           : connections) {}
  RankContext& operator=(RankContext&&) = delete;

  /// Returns true on all but the first of the ranks that share layers. The first counts the losses and the parameters
  /// that all hold in full.
  [[nodiscard]] bool is_copy() const { return tensor && tensor->place().rank > 0; }

  const Job& job;
  const RankId world_rank;  // Among all ranks
  // Among the ranks of its lane: with tensor parallelism, those that hold the same part of every layer
  // (engine/tensor_ranks.h). Without, equal to world_rank.
  const RankId rank;
  const GroupWorker place;  // Data-parallel group and worker
  const at::Device device;
  const DeterministicKernels kernels;             // On for canonical reduction, as long as the rank trains
  const std::unique_ptr<RankTensorGroup> tensor;  // Ranks that share this rank's layers; null without such
  const std::unique_ptr<LaneTransport> lane;      // Null without tensor parallelism
  std::optional<VerifiedMessages> verified;       // Adds checksums, with --verify-messages
  Transport& transport;                           // To the ranks of the lane

 private:
  static std::unique_ptr<RankTensorGroup> tensor_group(const Job& job, RankId rank, Transport& connections) {
    const TensorRanks ranks = job.ranks();
    if (ranks.ranks == 1) return nullptr;
    const ParameterGroupId group = ranks.tensor_group(rank, job.run.worker_groups().size());
    // Canonical sums add in the order of ranks.
    const bool scatters = uses_gpu(job.options) && !job.canonical;
    return std::make_unique<RankTensorGroup>(connections, ranks.place(rank), group, job.cuts_tokens, scatters);
  }
};

}  // namespace chimera
