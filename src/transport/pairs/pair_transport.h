#pragma once

// The transport of ranks with a GPU each, over NCCL or another backend of PyTorch's c10d. A wait blocks only the GPU's
// current stream, so that the thread can launch further work. See transport.h for the contract.

#include <memory>

#include "transport/pairs/communicators.h"
#include "transport/transport.h"

namespace chimera {

/// Least timeout of a wait, in steps as long as the longest so far.
inline constexpr int kStepsOfTimeout = 4;

/// Creates a transport over c10d process groups, with two communicators per pair of ranks, one per direction (NCCL).
///
/// Transfers are issued in program order, and both directions overlap. Both ends must issue the transfers of a
/// direction in the same order: check() (check/check_program.h) must accept the program with
/// ChannelDiscipline::PerDirection. On a device with streams a wait blocks only the current stream; only sums of
/// numbers block the thread. Tags are not sent, because reading them would wait for the device. The memory of a message
/// can be reused as soon as the host has dropped the tensor, so memory does not grow if the host runs ahead of the
/// device.
///
/// Collective. Every group first transfers one element, in one order on all ranks, because NCCL connects two members at
/// their first transfer and blocks both threads. Source: ncclTransportP2pSetup, NVIDIA/nccl#783.
///
/// connect_sums() runs the collectives of a gradient sum once at their size: NCCL chooses the algorithm (ring, tree,
/// NVLS) by the size, and connects it at the first collective that uses it (ncclPrepareTasks, initAlgoChannels).
///
/// A wait fails after Communicators::timeout or, if this is longer, after kStepsOfTimeout times the longest step so
/// far.
///
/// With Communicators::breaker, the rank outlives lost ranks. Aborted operations end with wrong data, also on ranks
/// that have aborted nothing. So sums of numbers and confirm() throw PeerLostError if any rank has aborted its groups
/// before. If they do not throw, all gradient sums and messages before them are right.
///
/// Without GradientSum::order, gradient sums use the order of c10d's all-reduce. Throws TransportError; PeerLostError
/// if a group reports a network or peer failure.
[[nodiscard]] std::unique_ptr<Transport> make_pair_transport(Communicators communicators);

}  // namespace chimera
