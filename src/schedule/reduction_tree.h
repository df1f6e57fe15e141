#pragma once
// A fixed order of addition, so that gradients do not depend on the schedule (`--reduction canonical`): one binary tree
// over blocks of the step's samples. With 4 blocks, every schedule adds (0 + 1) + (2 + 3), although one worker may hold
// blocks 0 and 1 and another 2 and 3, or one worker all of them.

#include <cstdint>
#include <utility>
#include <vector>

#include "core/ids.h"

namespace chimera {

/// The sum of blocks [index 2^level, (index + 1) 2^level).
struct Subtree {
  int level = 0;
  std::int64_t index = 0;
  friend bool operator==(const Subtree&, const Subtree&) = default;
};

/// Adds subtrees pushed from left to right, as a binary counter does: siblings at once, the rest at the end from right
/// to left. Any grouping of blocks into whole subtrees gives the same additions.
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
  /// Returns and removes the subtrees without a sibling.
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

/// parts[member]: the subtrees that each group member adds, from left to right.
struct SumOrder {
  std::vector<std::vector<Subtree>> parts;
};

/// Micro-batches of a replica: positions [first, last) in the step's samples.
struct MicroBatchRun {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// Returns the largest power of two that divides the step's micro-batches, at most 64.
[[nodiscard]] std::int64_t default_reduction_blocks(std::int64_t micro_batches);

/// Returns, ascending, the numbers of equal blocks that split no run.
[[nodiscard]] std::vector<std::int64_t> legal_reduction_blocks(std::int64_t micro_batches,
                                                               const std::vector<MicroBatchRun>& runs);

}  // namespace chimera
