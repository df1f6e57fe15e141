

#include <map>
#include <set>

#include "transport/gloo/gloo_transport.h"
#include "transport/groups.h"

namespace chimera {
namespace {

TEST(NeighborsTest, RanksAreChildrenOfTheirParents) {
  for (const int size : {1, 2, 3, 5, 6, 21, 64, 100}) {
    for (int rank = 0; rank < size; ++rank) {
      const TreePlace place = place_in_tree(rank, size);
      ASSERT_EQ(place.subtree.first, rank);
      ASSERT_LE(place.children.size(), static_cast<std::size_t>(kTreeBranches));
      int next = rank + 1;  // the subtree of a rank holds consecutive ranks
      for (const RankRange& child : place.children) {
        EXPECT_EQ(child.first, next);
        EXPECT_LT(child.first, child.end);
        EXPECT_EQ(place_in_tree(child.first, size).parent, rank);
        EXPECT_EQ(place_in_tree(child.first, size).subtree, child);
        next = child.end;
      }
      EXPECT_EQ(next, place.subtree.end);
      EXPECT_EQ(place.parent < 0, rank == 0);
    }
  }
}

TEST(NeighborsTest, TheTreesDepthGrowsAsTheLogarithm) {
  constexpr int kRanks = 2048;
  int deepest = 0;
  for (int rank = 0; rank < kRanks; ++rank) {
    int depth = 0;
    for (int at = rank; at != 0; at = place_in_tree(at, kRanks).parent) ++depth;
    deepest = std::max(deepest, depth);
  }
  EXPECT_EQ(deepest, 6);
}

std::vector<RankPair> line(int ranks) {
  std::vector<RankPair> pairs;
  for (int rank = 1; rank < ranks; ++rank) pairs.emplace_back(rank - 1, rank);
  return pairs;
}

/// Rounds until all pairs are connected in the ranks' orders, if a pair needs both ranks at once; 0 if the ranks
/// deadlock.
int rounds_until_all_are_connected(int ranks, const std::vector<RankPair>& pairs) {
  std::map<int, std::vector<RankPair>> orders;
  for (int rank = 0; rank < ranks; ++rank) orders[rank] = connecting_order(rank, pairs);
  std::map<int, std::size_t> at;
  for (int round = 1;; ++round) {
    std::set<RankPair> ready;
    bool all_done = true;
    for (const RankPair& pair : pairs) {
      const auto wants = [&](int rank) { return at[rank] < orders[rank].size() && orders[rank][at[rank]] == pair; };
      if (wants(pair.first) && wants(pair.second)) ready.insert(pair);
    }
    for (const auto& [low, high] : ready) ++at[low], ++at[high];
    for (int rank = 0; rank < ranks; ++rank) all_done = all_done && at[rank] == orders[rank].size();
    if (all_done) return round;
    if (ready.empty()) return 0;
  }
}

TEST(NeighborsTest, NeighborsInALineConnectAtTheSameTime) {
  EXPECT_EQ(rounds_until_all_are_connected(64, line(64)), 2);
}

TEST(NeighborsTest, ConnectingOrderHasNoDeadlock) {
  EXPECT_GT(rounds_until_all_are_connected(9, all_pairs(9)), 0);
  std::vector<RankPair> star = line(12);
  for (int rank = 2; rank < 12; ++rank) star.emplace_back(0, rank);
  EXPECT_GT(rounds_until_all_are_connected(12, star), 0);
}

TEST(NeighborsTest, DescriptorsGrowWithNeighborsNotWithRanks) {
  const RankGroups groups = {{RankId(0), RankId(1)}};
  const std::int64_t few = gloo_descriptors(64, groups, line(64));
  EXPECT_EQ(gloo_descriptors(1024, groups, line(1024)), few);
  EXPECT_LT(few, 24);
  EXPECT_EQ(gloo_descriptors(1, {}, {}), 0);
}

}  // namespace
}  // namespace chimera
