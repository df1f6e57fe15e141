#pragma once

#include <ATen/core/Tensor.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <utility>
#include <vector>

#include "core/rendezvous_point.h"
#include "transport/fingerprint.h"
#include "transport/groups.h"
#include "transport/transport.h"

// What ranks on GPUs make sure of before they are connected, and what NCCL is told about where to listen.

// The process groups of a rank with two communicators for each pair of ranks, one a direction: how they are made, what
// room they take on a GPU, and how they end.

namespace chimera {

/// What a rank says of itself where the ranks meet.
struct Attendee {
  int rank = 0;
  Fingerprint fingerprint = {};  ///< empty: nobody compares
  std::string gpu = {};          ///< its GpuTraits::uuid; empty: nobody compares
};

/// To be called by all ranks, once all have come. Compares what they say of themselves. Throws what require_equal()
/// throws where they were started differently; ConfigError on the ranks that have one GPU together, PeerLostError on
/// the others.
void compare_attendees(c10d::Store& store, const Attendee& own, int world_size);

/// To be called by all ranks: the least of the numbers that they give.
[[nodiscard]] int least_of_all(c10d::Store& store, int rank, int number, int world_size);

/// Variables of the environment, by name.
using VariableList = std::vector<std::pair<std::string, std::string>>;

/// What CUDA reads when it starts, for processes whose GPUs wait for each other: every kernel is loaded then, as to
/// load one later may wait for all that is under way on the GPU (source: CUDA Programming Guide, Lazy Loading,
/// Potential Hazards), a receive among it whose sender waits likewise; and streams have hardware queues of their own.
[[nodiscard]] VariableList cuda_variables();

/// The variables that NCCL reads, so that it listens where the ranks meet and nowhere else (on one host on the
/// loopback interface, on several on that of own_interface()), and connects what collectives need with a communicator
/// instead of at their first call. Variables that the user has set come before them.
[[nodiscard]] VariableList nccl_variables(const MeetingPoint& meeting);

/// Sets those in this process's environment that the user has not set. No other thread may read it meanwhile.
void set_unless_set(const VariableList& variables);

/// The process groups of one rank, all ready.
struct Communicators {
  using Group = c10::intrusive_ptr<c10d::Backend>;
  /// The two of a pair of ranks, in both of which the lower rank is member 0: each carries one direction.
  struct Pair {
    Group out = {};  // to the peer
    Group in = {};   // from it
  };
  std::shared_ptr<void> keep = {};  // what the groups need to live
  int rank = 0;
  at::Device device = at::kCPU;    // of messages and gradients
  std::map<int, Pair> pairs = {};  // by peer
  RankGroups groups = {};
  std::vector<Group> process_groups = {};  // by parameter group; null where this rank is no member, or the only one
  Group everyone = {};                     // null where there is one rank
  bool sums_in_order = false;              // whether start_ordered_all_reduce() will be called
  /// Called once, when all ranks have made and connected all of theirs. May be empty.
  std::function<void()> connected = {};
  /// Called once, when the transport goes: `has_failed` where an exception ends it, so that peers may never come and
  /// what is under way has to be aborted. May be empty.
  std::function<void(bool has_failed)> end = {};
};

/// The ranks that a rank makes communicators with: as in GlooOptions.
struct CommunicatorPlan {
  int rank = 0;
  int world_size = 1;
  RankGroups groups = {};
  std::vector<RankPair> pairs = {};  ///< ascending
};

/// Thread blocks that a kernel of a communicator may take. It takes them while it waits for the other members, and
/// nothing else can then have their multiprocessors.
struct BlockLimits {
  int everyone = 1;  ///< its sums are small
  int group = 16;
  int pair = 4;
};

/// Limits with which the communicators of a rank, each of which may have a kernel that waits, take at most half of a
/// GPU's multiprocessors: the other half is for what they wait for, which ends by itself. Pairs get less where groups
/// would else have less than they. Powers of two, as NCCL makes the channels of transfers one. The same on all ranks,
/// as NCCL wants it, where all give the same number. Throws ConfigError where a block each is more than the half.
[[nodiscard]] BlockLimits block_limits(const CommunicatorPlan& plan, int multiprocessors);

/// A communicator that a rank is about to make.
struct NewCommunicator {
  std::string name = {};  ///< the same on its members, and no other's
  int member = 0;         ///< what this rank is in it
  int size = 0;
  int blocks = 0;  ///< its BlockLimits
};

/// Makes the communicators of a rank one after the other by `make`, which waits for the other members: everyone, then
/// the parameter groups, then the pairs, ascending, of each the one that carries from the lower rank to the higher and
/// then the other. As all ranks make theirs in this order, no two of them wait for each other in different ones.
[[nodiscard]] Communicators make_communicators(const CommunicatorPlan& plan, const BlockLimits& limits,
                                               const std::function<Communicators::Group(const NewCommunicator&)>& make);

/// All of a rank, in the order in which make_communicators() makes them.
[[nodiscard]] std::vector<Communicators::Group> all_groups(const Communicators& of);

/// Aborts what is under way in all of them at once, a thread each, and returns when all have ended: a communicator ends
/// only when its kernels have, which may wait for those of another (NCCL frees memory, for which the device must be
/// done), and c10d aborts each on a thread of its own, so that a group of NCCL calls around several holds none of them
/// together. What one throws is dropped.
void abort_together(const std::vector<Communicators::Group>& groups);

}  // namespace chimera
