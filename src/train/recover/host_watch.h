#pragma once

// Detects dead hosts in a job that another launcher has started, such as torchrun. A host that loses power closes no
// connection, and Gloo would wait for it forever. The ranks therefore exchange heartbeats with rank 0
// (rendezvous/heartbeats.h), and a rank that stays silent ends the job. The launcher of chimera needs no heartbeats,
// because it sees its processes die.

#include "launch/local/rank.h"
#include "rendezvous/heartbeats.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Starts the heartbeats, which run until the result is destroyed. Collective; all ranks call it after they have
/// connected. If a rank is silent, this process exits at once with ExitCode::PeerLost. Rank 0 prints the reason; if
/// rank 0 is silent, one rank per host does. `keeps_connections` says that the transport (as Gloo, unlike NCCL) closes
/// no TCP connection that is open now. If one closes nevertheless, and the rank does not fail within 2.5 s, it waits in
/// vain, and the job ends as for a silent rank. Returns null if heartbeats are not needed: on one host, and with the
/// launcher of chimera.
[[nodiscard]] std::unique_ptr<Heartbeats> watch_hosts(const RankEnvironment& rank, Transport& transport,
                                                      bool keeps_connections);

}  // namespace chimera
