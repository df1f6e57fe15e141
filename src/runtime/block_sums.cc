#include "runtime/block_sums.h"

#include <ATen/ATen.h>

#include <utility>

namespace chimera {

BlockSums::BlockSums(at::Tensor gradients, std::int64_t block_size)
    : gradients_(std::move(gradients)), block_size_(block_size) {}

at::Tensor BlockSums::spare() {
  if (spares_.empty()) return at::empty_like(gradients_);
  at::Tensor buffer = std::move(spares_.back());
  spares_.pop_back();
  return buffer;
}

void BlockSums::open(ReplicaId replica) {
  const at::NoGradGuard no_grad;
  if (runs_.empty()) open_ = replica;
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
  at::Tensor block = spare();
  block.copy_(gradients_);
  gradients_.zero_();
  runs_.at(open_).blocks.push({0, position / block_size_}, std::move(block), [&](at::Tensor left, at::Tensor right) {
    left.add_(right);
    spares_.push_back(std::move(right));
    return left;
  });
}

std::vector<at::Tensor> BlockSums::take() {
  std::vector<at::Tensor> parts;
  for (auto& [replica, run] : runs_) {
    for (auto& [tree, sum] : run.blocks.take()) parts.push_back(std::move(sum));
  }
  runs_.clear();
  return parts;
}

}  // namespace chimera
