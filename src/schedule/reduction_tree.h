#pragma once
// One order of adding that no schedule changes: the step's samples form blocks, and blocks are added by one binary
// tree.

#include <cstdint>
#include <optional>
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

/// Adds subtrees that are handed in from left to right, as a binary counter does: two neighbours below one parent at
/// once, and at the end what is left from right to left. However the blocks were grouped into whole subtrees before,
/// the same numbers are added. A `Sum` may be a tensor, or whatever `add(left, right)` can add.
template <class Sum>
class TreeAdder {
 public:
  /// `add(Sum left, Sum right)` returns the sum of both; it may reuse either.
  template <class Add>
  void push(Subtree tree, Sum sum, Add&& add) {
    while (!pending_.empty() && tree.index % 2 == 1 && pending_.back().first == Subtree{tree.level, tree.index - 1}) {
      sum = add(std::move(pending_.back().second), std::move(sum));
      pending_.pop_back();
      tree = {tree.level + 1, tree.index / 2};
    }
    pending_.emplace_back(tree, std::move(sum));
  }
  /// The whole subtrees so far that have no neighbour yet, from left to right; leaves none behind.
  [[nodiscard]] std::vector<std::pair<Subtree, Sum>> take() { return std::exchange(pending_, {}); }
  /// The sum of all, of at least one; leaves none behind.
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

/// The fewest whole subtrees that blocks [first, last) consist of, from left to right.
[[nodiscard]] std::vector<Subtree> subtrees_of(std::int64_t first, std::int64_t last);

/// The subtrees that each copy of a stage adds to the sum: parts[member], left to right. Members are in any order.
struct SumOrder {
  std::vector<std::vector<Subtree>> parts;
};

/// Which micro-batches a copy of the model works on: those that stand at [first, last) in the step's samples.
struct MicroBatchRun {
  std::int64_t first = 0;
  std::int64_t last = 0;
};

/// The default number of blocks: the largest power of two that divides the step's micro-batches, at most 64.
[[nodiscard]] std::int64_t default_reduction_blocks(std::int64_t micro_batches);

/// The numbers of blocks (ascending) that cut `micro_batches` into equal blocks of which every run has whole ones.
[[nodiscard]] std::vector<std::int64_t> legal_reduction_blocks(std::int64_t micro_batches,
                                                               const std::vector<MicroBatchRun>& runs);

}  // namespace chimera
