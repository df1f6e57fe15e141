#include "schedule/reduction_tree.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

std::string in_brackets(const std::string& left, const std::string& right) { return "(" + left + "+" + right + ")"; }

/// Shows how blocks [0, blocks) are added if the runs between `cuts` are added separately first.
std::string sum_of(std::int64_t blocks, std::vector<std::int64_t> cuts = {}) {
  cuts.push_back(blocks);
  TreeAdder<std::string> top;
  std::int64_t block = 0;
  for (const std::int64_t end : cuts) {
    TreeAdder<std::string> run;
    for (; block < end; ++block) run.push({0, block}, std::to_string(block), in_brackets);
    for (auto& [tree, sum] : run.take()) top.push(tree, std::move(sum), in_brackets);
  }
  return top.total(in_brackets);
}

TEST(ReductionTreeTest, BlocksAreAddedByOneBinaryTree) {
  EXPECT_EQ(sum_of(1), "0");
  EXPECT_EQ(sum_of(8), "(((0+1)+(2+3))+((4+5)+(6+7)))");
  EXPECT_EQ(sum_of(7), "(((0+1)+(2+3))+((4+5)+6))");
}

TEST(ReductionTreeTest, RunsAddedSeparatelyDoNotChangeTheTree) {
  for (std::int64_t blocks = 1; blocks <= 12; ++blocks) {
    for (std::int64_t one = 0; one <= blocks; ++one) {
      for (std::int64_t other = one; other <= blocks; ++other)
        EXPECT_EQ(sum_of(blocks, {one, other}), sum_of(blocks)) << blocks << " cut at " << one << " and " << other;
    }
  }
}

TEST(ReductionTreeTest, ARunConsistsOfWholeSubtrees) {
  EXPECT_THAT(subtrees_of(0, 4), ElementsAre(Subtree{2, 0}));
  EXPECT_THAT(subtrees_of(4, 8), ElementsAre(Subtree{2, 1}));
  EXPECT_THAT(subtrees_of(1, 6), ElementsAre(Subtree{0, 1}, Subtree{1, 1}, Subtree{1, 2}));
  EXPECT_THAT(subtrees_of(3, 3), IsEmpty());
}

TEST(ReductionTreeTest, BlocksDependOnlyOnTheNumberOfMicroBatches) {
  EXPECT_EQ(default_reduction_blocks(8), 8);
  EXPECT_EQ(default_reduction_blocks(12), 4);
  EXPECT_EQ(default_reduction_blocks(5), 1);
  EXPECT_EQ(default_reduction_blocks(1024), 64);
}

TEST(ReductionTreeTest, ARunMustHaveWholeBlocks) {
  EXPECT_THAT(legal_reduction_blocks(8, {{0, 4}, {4, 8}}), ElementsAre(2, 4, 8));
  EXPECT_THAT(legal_reduction_blocks(12, {{0, 4}, {4, 8}, {8, 12}}), ElementsAre(3, 6, 12));
  EXPECT_THAT(legal_reduction_blocks(5, {{0, 3}, {3, 5}}), ElementsAre(5));
}

}  // namespace
}  // namespace chimera
