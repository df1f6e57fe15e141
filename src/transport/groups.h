#pragma once

// Sets of ranks that communicate: pairs, a tree of all ranks, members of a parameter group. All functions are pure, so
// every rank computes the same sets without asking.

#include <cstddef>
#include <utility>
#include <vector>

#include "transport/transport.h"

namespace chimera {

/// Two ranks that exchange messages, the lower rank first.
using RankPair = std::pair<int, int>;
[[nodiscard]] std::vector<RankPair> all_pairs(int world_size);

/// Returns the pairs of `rank` in an order without deadlock: in rounds, with at most one pair per rank.
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
  /// [child], at most kTreeBranches; begins with the child
  std::vector<RankRange> children = {};
};
inline constexpr int kTreeBranches = 4;
[[nodiscard]] TreePlace place_in_tree(int rank, int world_size);

/// Throws TransportError if `rank` is not a member.
[[nodiscard]] std::size_t place_in_group(const RankGroups& groups, ParameterGroupId group, RankId rank);

}  // namespace chimera
