#pragma once
// The process groups of a rank with two communicators for each pair of ranks, one a direction: how they are made, what
// room they take on a GPU, and how they end.

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <vector>

#include "transport/neighbors.h"
#include "transport/transport.h"

namespace chimera {

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
