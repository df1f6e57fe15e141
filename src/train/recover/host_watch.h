#pragma once

// Detection of dead hosts in jobs that another launcher has started. Our launcher sees its processes die, but a host
// that loses power closes no connection, and Gloo would wait for it forever. The hosts therefore exchange heartbeats
// (rendezvous/heartbeats.h), and a silent one ends the job.

#include <memory>

#include "launch/local/rank.h"
#include "rendezvous/heartbeats.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Starts heartbeats between hosts. If a rank is silent, this process exits with ExitCode::PeerLost, because it could
/// wait forever. One rank reports it; if rank 0 is silent, a rank per host. All ranks call this after the rendezvous.
/// Returns null for one host, our launcher or --hang-seconds 0.
[[nodiscard]] std::unique_ptr<Heartbeats> watch_hosts(const Job& job, const RankEnvironment& rank,
                                                      Transport& transport);

}  // namespace chimera
