#pragma once
// Ranks over c10d process groups with two communicators for each pair of ranks, one a direction: NCCL's way.

#include <memory>

#include "transport/pairs/communicators.h"
#include "transport/transport.h"

namespace chimera {

/// Issues every transfer when it is called, in program order, on the communicator of its direction: a queue each, so
/// that both directions of a pair are on their way at once. So the program must be one that `check` accepts with
/// ChannelDiscipline::PerDirection: the two ends of each queue then issue its transfers in one order. What must
/// progress together, the exchanges of an ordered sum, c10d groups itself. On a device that works in streams a wait
/// makes the current stream wait, not the thread; only the sums of numbers, which go to the CPU, block it. Tags do not
/// travel: looking at one would wait for the device.
///
/// Collective: returns once all ranks have called it. Every group carries an element first, in one order on all ranks,
/// as NCCL connects two members at the first transfer between them, where each one's thread waits for the other's: the
/// steps' programs have orders of their own. With NCCL_RUNTIME_CONNECT=0 (nccl_variables()) what collectives need is
/// connected with the communicator, whatever their sizes. Source: ncclTransportP2pSetup, NVIDIA/nccl#783.
///
/// Sums of gradients are in the order of the groups' own all-reduce; ordered and all_sum as for every transport. Throws
/// TransportError, PeerLostError where a group says that its network or a peer failed.
[[nodiscard]] std::unique_ptr<Transport> make_pair_transport(Communicators communicators);

}  // namespace chimera
