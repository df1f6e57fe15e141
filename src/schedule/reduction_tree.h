#pragma once
// A fixed order of additions for `--reduction canonical`, so that the bits of gradients do not depend on the schedule.
// The micro-batches of a step are divided into blocks, and the sums of the blocks are added along one binary tree. With
// 4 blocks, every schedule adds (0 + 1) + (2 + 3), whether one worker computes all blocks, or one worker blocks 0 and 1
// and another blocks 2 and 3. engine/canonical.h plans which worker adds which subtrees.

#include <utility>
#include <vector>

#include "core/ids.h"

namespace chimera {

/// A node of the tree: the sum of the 2^level blocks from block index * 2^level on.
struct Subtree {
  int level = 0;
  std::int64_t index = 0;
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

/// Adds the sums of subtrees, which the caller pushes from left to right. Two siblings are added as soon as both exist.
/// total() adds the rest from right to left. The additions are the same for every division of the blocks into subtrees.
template <class Sum>
class TreeAdder {
 public:
  /// `add(Sum left, Sum right)` returns the sum and may reuse either argument.
  template <class Add>
  void push(Subtree tree, Sum sum, Add&& add) {
    while (!pending_.empty() && tree.index % 2 == 1 && pending_.back().first == Subtree{tree.level, tree.index - 1}) {
      sum = add(std::move(pending_.back().second), std::move(sum));
      pending_.pop_back();
      tree = {tree.level + 1, tree.index / 2};
    }
    pending_.emplace_back(tree, std::move(sum));
  }
  /// Returns and removes the subtrees whose siblings are missing, with their sums, from left to right.
  [[nodiscard]] std::vector<std::pair<Subtree, Sum>> take() { return std::exchange(pending_, {}); }
  /// Returns and removes the sum of all subtrees. Requires at least one.
  template <class Add>
  [[nodiscard]] Sum total(Add&& add) {
    auto rest = take();
    Sum sum = std::move(rest.back().second);
    for (rest.pop_back(); !rest.empty(); rest.pop_back()) sum = add(std::move(rest.back().second), std::move(sum));
    return sum;
  }

 private:
  std::vector<std::pair<Subtree, Sum>> pending_;
};

/// Returns the fewest subtrees that make up blocks [first, last), from left to right.
[[nodiscard]] std::vector<Subtree> subtrees_of(std::int64_t first, std::int64_t last);

/// Which blocks each member (a rank that holds a parameter group, dependencies.h) sums itself, before the sums of
/// members are added.
struct SumOrder {
  std::vector<std::vector<Subtree>> parts;  // [member, by ascending rank]: its subtrees, from left to right
};

/// Consecutive micro-batches that one replica of one data-parallel group processes: [first, last), numbered in the
/// order of the step's samples.
struct MicroBatchRun {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Returns the number of blocks if the user gives none: the largest power of two, at most 64, that divides the step's
/// micro-batches.
[[nodiscard]] std::int64_t default_reduction_blocks(std::int64_t micro_batches);

/// Returns the valid numbers of blocks, ascending: all blocks are equally long, and no block contains micro-batches of
/// two runs.
[[nodiscard]] std::vector<std::int64_t> legal_reduction_blocks(std::int64_t micro_batches,
                                                               const std::vector<MicroBatchRun>& runs);

}  // namespace chimera
