#pragma once

// The transport of rank processes on CPUs: messages over TCP by c10d's Gloo backend, gradient sums in shared memory
// where possible. See transport.h for the contract, connections.h for the start, shared_sum.h for sums.

#include <memory>

#include "transport/gloo/gloo_options.h"
#include "transport/transport.h"

namespace chimera {

/// Joins the other ranks over c10d's Gloo backend (TCP); returns once all have joined. Ranks with a rendezvous file
/// listen on 127.0.0.1, others at own_address(). Calls leave_header_room().
///
/// Sends complete only after the receive is posted. Start functions also throw if a connection is lost. Gradient sums
/// are deterministic, with the same bits on all members:
/// - one host: in shared memory, in ascending order of workers;
/// - several hosts with the same number of members, at least two: first on each host, then in Gloo's ring order;
/// - otherwise, or without shared memory: in Gloo's ring order of members.
/// A reduce-scatter adds in the same order on one host. Over several hosts it adds hosts in ascending order, or else
/// members as the leaves of a tree (SumOrder). all_sum() adds in ascending order of workers.
///
/// The destructor waits up to three seconds for the other ranks, so that no connection in use breaks. After a failure
/// it leaves everything open, or, with a breaker, breaks the connections and waits until no thread adds gradients, so
/// that the process can connect again. Every Pending must be destroyed before. SIGPIPE must be ignored.
///
/// Throws the errors of require_equal(), TransportError if ranks cannot be reached in time, and PeerLostError if a rank
/// is lost. Fault points: rendezvous, connected, sum.
[[nodiscard]] std::unique_ptr<Transport> connect_gloo(const GlooOptions& options);

}  // namespace chimera
