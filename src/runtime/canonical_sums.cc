#include "runtime/canonical_sums.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <iterator>
#include <utility>

#include "model/parameter_group.h"

namespace chimera {

// Finished subtrees, and one pending sum of each lower level.
std::int64_t spare_buffers(const std::vector<Subtree>& trees) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < trees.size(); ++i) {
    most = std::max(most, static_cast<std::int64_t>(i) + std::max(trees[i].level, 1));
  }
  return most;
}

BlockSums::BlockSums(at::Tensor gradients, std::int64_t block_size)
    : gradients_(std::move(gradients)), block_size_(block_size) {}

at::Tensor BlockSums::spare() {
  // The transport may still read a taken buffer. It has released the buffer when this is the only reference.
  if (spares_.empty()) {
    const auto returned =
        std::partition(taken_.begin(), taken_.end(), [](const at::Tensor& buffer) { return buffer.use_count() > 1; });
    std::move(returned, taken_.end(), std::back_inserter(spares_));
    taken_.erase(returned, taken_.end());
  }
  if (spares_.empty()) return shared_zeros(gradients_.numel(), gradients_.options());
  at::Tensor buffer = std::move(spares_.back());
  spares_.pop_back();
  return buffer;
}

void BlockSums::open(ReplicaId replica) {
  const at::NoGradGuard no_grad;
  // The first backward of a step finds zeros in `gradients_`.
  if (runs_.empty()) open_ = replica;
  // Two replicas alternate on a worker of a bidirectional schedule. Backwards always add into `gradients_`, so the
  // block of the other replica is saved while this one runs.
  Run& run = runs_[replica];
  if (open_ == replica) return;
  at::Tensor& other = runs_[open_].under_way;
  other = spare();
  other.copy_(gradients_);
  open_ = replica;
  if (run.under_way.defined()) {
    gradients_.copy_(run.under_way);
    spares_.push_back(std::exchange(run.under_way, {}));
  } else {
    gradients_.zero_();
  }
}

void BlockSums::close(std::int64_t position) {
  if ((position + 1) % block_size_ != 0) return;
  const at::NoGradGuard no_grad;
  Run& run = runs_.at(open_);
  const std::int64_t block = position / block_size_;
  if (!run.first_block) run.first_block = block;
  // A right sibling is added to the left one without a copy.
  const bool is_added_at_once = block % 2 == 1 && *run.first_block < block;
  at::Tensor sum = gradients_;
  if (!is_added_at_once) {
    // The sum must outlive the next block, which reuses `gradients_`.
    sum = spare();
    sum.copy_(gradients_);
  }
  // The adder joins subtrees as soon as both halves exist, so at most one sum for each level of the tree is kept.
  run.blocks.push({0, block}, std::move(sum), [&](at::Tensor left, at::Tensor right) {
    left.add_(right);
    if (!right.is_same(gradients_)) spares_.push_back(std::move(right));
    return left;
  });
  gradients_.zero_();
}

std::vector<at::Tensor> BlockSums::take() {
  std::vector<at::Tensor> parts;
  for (auto& [replica, run] : runs_) {
    for (auto& [tree, sum] : run.blocks.take()) parts.push_back(std::move(sum));
  }
  runs_.clear();
  // The transport gets references. spare() takes a buffer back when the transport has let it go.
  taken_.insert(taken_.end(), parts.begin(), parts.end());
  return parts;
}

HiddenGradients::HiddenGradients(Stage& stage) : stage_(stage) {
  // An undefined gradient makes autograd create a new tensor, which show() finds.
  for (at::Tensor leaf : stage.leaves()) gradients_.push_back(std::exchange(leaf.mutable_grad(), at::Tensor()));
}

void HiddenGradients::show(WeightGradients& owed) {
  for (std::size_t i = 0; i < gradients_.size(); ++i) {
    at::Tensor leaf = stage_.leaves()[i];
    const at::Tensor added = std::exchange(leaf.mutable_grad(), gradients_[i]);
    if (added.defined()) owed.submit([sum = gradients_[i], added] { sum.add_(added); });
  }
}

}  // namespace chimera
