#pragma once

// The transport of rank processes on CPUs: messages over TCP by the Gloo backend of PyTorch's c10d, gradient sums in
// shared memory where possible. See transport.h for the contract, connections.h for options and the start, shared_sum.h
// for sums.

#include <memory>

#include "transport/gloo/connections.h"
#include "transport/transport.h"

namespace chimera {

/// Connects to the other ranks over c10d's Gloo backend (TCP), and returns once all ranks have connected. Ranks with a
/// rendezvous file listen on 127.0.0.1, others at own_address(). From then on, ATen reserves room for a message header
/// before each CPU tensor (leave_header_room()). The process must ignore SIGPIPE.
///
/// A send completes only after the peer has posted the receive. The functions that start an operation also throw if a
/// connection is lost.
///
/// Gradient sums are deterministic, with the same bits on all members. GradientSum::order sets the order of additions.
/// Without it, the order depends on the hosts of the members ("ascending" means by ascending rank):
///
///   members                                          all-reduce               reduce-scatter
///   on one host, in shared memory                    ascending                ascending
///   on several hosts, equally many (at least two)    ascending on each host,  ascending on each host,
///   on each, in shared memory                        then Gloo's ring         then by ascending host
///   all others                                       Gloo's ring              binary tree of members (SumOrder)
///
/// all_sum() adds in ascending order of ranks.
///
/// All Pending objects must be destroyed before the transport. The destructor waits up to three seconds for the other
/// ranks to finish, because it breaks the connections to them. After a failure it does not wait. It then leaves all
/// connections open, or, if GlooOptions::breaker is set, shuts them down and waits until no thread adds gradients, so
/// that the process can connect again.
///
/// All ranks compare GlooOptions::fingerprint; if ranks differ, throws the errors of require_equal()
/// (transport/fingerprint.h). Throws TransportError if ranks cannot be reached in time, and PeerLostError if a rank
/// is lost. Tests inject faults (core/fault_point.h) at rendezvous, connected and sum.
[[nodiscard]] std::unique_ptr<Transport> connect_gloo(const GlooOptions& options);

}  // namespace chimera
