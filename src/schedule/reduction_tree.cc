#include "schedule/reduction_tree.h"

#include <algorithm>

#include "core/mapped.h"

namespace chimera {

std::vector<Subtree> subtrees_of(std::int64_t first, std::int64_t last) {
  // The adder merges siblings as it does for gradients, so its rest is the answer. The sums are empty.
  struct Nothing {};
  TreeAdder<Nothing> adder;
  for (std::int64_t block = first; block < last; ++block)
    adder.push({0, block}, Nothing{}, [](Nothing, Nothing) { return Nothing{}; });
  return mapped(adder.take(), [](const auto& tree_and_sum) { return tree_and_sum.first; });
}

std::int64_t default_reduction_blocks(std::int64_t micro_batches) {
  constexpr std::int64_t kMax = 64;
  std::int64_t blocks = 1;
  while (blocks < kMax && micro_batches % (2 * blocks) == 0) blocks *= 2;
  return blocks;
}

std::vector<std::int64_t> legal_reduction_blocks(std::int64_t micro_batches, const std::vector<MicroBatchRun>& runs) {
  std::vector<std::int64_t> legal;
  for (std::int64_t blocks = 1; blocks <= micro_batches; ++blocks) {
    if (micro_batches % blocks != 0) continue;
    const std::int64_t size = micro_batches / blocks;
    // One worker adds the micro-batches of a block in order. If two replicas shared a block, its sum would need another
    // order of additions.
    const auto is_whole = [&](const MicroBatchRun& run) { return run.first % size == 0 && run.last % size == 0; };
    if (std::all_of(runs.begin(), runs.end(), is_whole)) legal.push_back(blocks);
  }
  return legal;
}

}  // namespace chimera
