#pragma once
// Hosts of a job that say nothing any more.

#include <memory>

#include "launch/local/rank.h"
#include "rendezvous/heartbeats.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Finds out who of the ranks on several hosts is silent, and then ends this process: as one that has lost a peer, as
/// it may wait for it for ever. One rank of the job says who, of a silent rank 0 one rank of each host. All ranks call
/// it, once they have joined: rank 0 tells the others through the transport where it listens. Null: the job runs on one
/// host, has a launcher of ours that watches, or is not to be watched (--hang-seconds 0).
[[nodiscard]] std::unique_ptr<Heartbeats> watch_hosts(const Job& job, const RankEnvironment& rank,
                                                      Transport& transport);

}  // namespace chimera
