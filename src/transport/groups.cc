#include "transport/groups.h"

#include <fmt/format.h>
#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/mapped.h"

namespace chimera {
namespace {

/// Splits the ranks below the root of `range` into equal subtrees.
std::vector<RankRange> parts_below(RankRange range) {
  // With 4 branches, the 9 ranks below the root of 10 form subtrees of 2, 2, 2 and 3 ranks.
  const int others = range.end - range.first - 1;
  const int parts = std::min(kTreeBranches, others);
  std::vector<RankRange> found;
  for (int part = 0; part < parts; ++part)
    found.push_back({range.first + 1 + others * part / parts, range.first + 1 + others * (part + 1) / parts});
  return found;
}

}  // namespace

std::vector<RankPair> all_pairs(int world_size) {
  std::vector<RankPair> pairs;
  for (int low = 0; low < world_size; ++low)
    for (int high = low + 1; high < world_size; ++high) pairs.emplace_back(low, high);
  return pairs;
}

// Colors the edges of the graph of pairs greedily: each pair takes the first round in which neither rank is busy. All
// ranks compute the same rounds, and within a round a rank waits for one other rank only, which waits for it.
std::vector<RankPair> connecting_order(int rank, std::vector<RankPair> pairs) {
  std::ranges::sort(pairs);
  std::map<int, std::set<int>> taken;  // [rank]: rounds
  std::map<int, RankPair> own;         // by round
  for (const RankPair& pair : pairs) {
    int round = 0;
    while (taken[pair.first].contains(round) || taken[pair.second].contains(round)) ++round;
    taken[pair.first].insert(round);
    taken[pair.second].insert(round);
    if (pair.first == rank || pair.second == rank) own[round] = pair;
  }
  return mapped<RankPair>(own, [](const auto& of_round) { return of_round.second; });
}

// Descends from the root: each subtree is a range of ranks, so rows that are gathered from children are in rank order.
TreePlace place_in_tree(int rank, int world_size) {
  TreePlace place{.subtree = {0, world_size}};
  while (true) {
    place.children = parts_below(place.subtree);
    if (rank == place.subtree.first) return place;
    place.parent = place.subtree.first;
    place.subtree = *std::ranges::find_if(
        place.children, [rank](const RankRange& child) { return rank >= child.first && rank < child.end; });
  }
}

std::size_t index_in_group(const RankGroups& groups, ParameterGroupId group, RankId rank) {
  if (group.index() < groups.size()) {
    const auto& members = groups[group.index()];
    const auto found = std::find(members.begin(), members.end(), rank);
    if (found != members.end()) return static_cast<std::size_t>(found - members.begin());
  }
  throw TransportError(
      fmt::format("rank {}: all-reduce of stage {}: this rank holds no copy of the stage, so it cannot take part",
                  rank.value(), group.value()));
}

}  // namespace chimera
