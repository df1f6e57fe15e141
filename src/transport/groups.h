#pragma once

#include <cstddef>
#include <utility>
#include <vector>

#include "transport/transport.h"

// Who is connected with whom.

// Who sums what: questions about RankGroups that every transport asks.

namespace chimera {

/// Two ranks that talk, the lower one first.
using RankPair = std::pair<int, int>;
/// Every rank with every other.
[[nodiscard]] std::vector<RankPair> all_pairs(int world_size);

/// The pairs that `rank` is in, in an order in which all ranks can connect with each other, many at a time: none waits
/// for one who waits for it. Each pair has a round in which neither of its ranks has another.
[[nodiscard]] std::vector<RankPair> connecting_order(int rank, std::vector<RankPair> pairs);

/// Consecutive ranks: first .. end - 1.
struct RankRange {
  int first = 0;
  int end = 0;

  friend bool operator==(const RankRange&, const RankRange&) = default;
};

/// A rank's place in a tree over all ranks. Below it are consecutive ranks, so that what a subtree has, in the order in
/// which it is put together, is in the order of ranks.
struct TreePlace {
  int parent = -1;                       ///< -1: it is the root, rank 0
  RankRange subtree = {};                ///< itself, and those below
  std::vector<RankRange> children = {};  ///< their subtrees, at most kTreeBranches; each one's first is the child
};
inline constexpr int kTreeBranches = 4;
[[nodiscard]] TreePlace place_in_tree(int rank, int world_size);

/// The place of `rank` among the members of the group, counted from 0.
/// Throws TransportError where it is none of them.
[[nodiscard]] std::size_t place_in_group(const RankGroups& groups, ParameterGroupId group, RankId rank);

}  // namespace chimera
