#pragma once
// Ranks over c10d process groups with a communicator for each pair of ranks: NCCL's way.

#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "schedule/program.h"
#include "transport/neighbours.h"
#include "transport/transport.h"

namespace chimera {

/// The process groups of one rank, all ready.
struct Communicators {
  using Group = c10::intrusive_ptr<c10d::Backend>;
  std::shared_ptr<void> keep = {};  // what the groups need to live
  int rank = 0;
  at::Device device = at::kCPU;     // of messages and gradients
  std::map<int, Group> pairs = {};  // by peer: the two of them, the lower rank as member 0
  RankGroups groups = {};
  std::vector<Group> process_groups = {};  // by parameter group; null where this rank is no member, or the only one
  Group everyone = {};                     // null where there is one rank
};

/// Issues every transfer when it is called, in program order, on the communicator of the pair: both directions share
/// one queue. So the program must be one that `check` accepts with ChannelDiscipline::SerialPair, where the two ends of
/// each pair issue its transfers in one order and nothing has to be grouped; what must progress together, the exchanges
/// of an ordered sum, c10d groups itself. On a device that works in streams a wait makes the current stream wait, not
/// the thread; only all_sum(), whose values are the CPU's, blocks it. Tags do not travel: looking at one would wait for
/// the device.
///
/// Sums of gradients are in the order of the groups' own all-reduce; ordered and all_sum as for every transport. Throws
/// TransportError, PeerLostError where a group says that its network or a peer failed.
[[nodiscard]] std::unique_ptr<Transport> make_pair_transport(Communicators communicators);

}  // namespace chimera
