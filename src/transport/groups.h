#pragma once

// Sets of ranks that communicate: pairs that exchange messages, a tree of all ranks, and the ranks that sum the
// gradients of a parameter group (a stage, or the tied matrix). The transports use them. All functions are pure, so
// every rank computes the same sets without communication.

#include <cstddef>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// Two ranks that exchange messages, the lower rank first.
using RankPair = std::pair<int, int>;
/// Returns all pairs of ranks.
[[nodiscard]] std::vector<RankPair> all_pairs(int world_size);

/// Returns the pairs of `rank`, in the order in which it connects to them. All ranks pass the same pairs. The order
/// follows rounds in which each rank has at most one pair, so blocking connections do not deadlock.
[[nodiscard]] std::vector<RankPair> connecting_order(int rank, std::vector<RankPair> pairs);

/// Ranks first .. end - 1.
struct RankRange {
  int first = 0;
  int end = 0;

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

/// Position of a rank in a tree. Subtrees are consecutive ranks, so gathered data is in rank order.
struct TreePlace {
  int parent = -1;  ///< -1 for the root, rank 0
  RankRange subtree = {};
  /// Subtrees of the children, at most kTreeBranches. The first rank of a subtree is the child.
  std::vector<RankRange> children = {};
};
inline constexpr int kTreeBranches = 4;
/// Returns the position of `rank` in the tree of all ranks.
[[nodiscard]] TreePlace place_in_tree(int rank, int world_size);

/// Returns the position of `rank` among the ranks of the group, which groups[group] lists. Throws TransportError if it
/// is not one of them.
[[nodiscard]] std::size_t index_in_group(const RankGroups& groups, ParameterGroupId group, RankId rank);

}  // namespace chimera
