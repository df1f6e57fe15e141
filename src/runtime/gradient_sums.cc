#include "runtime/gradient_sums.h"

#include <ATen/ATen.h>
#include <fmt/format.h>
#include <algorithm>
#include <iterator>
#include <utility>

#include "core/fault_point.h"
#include "core/invariant.h"
#include "model/parameter_group.h"
#include "runtime/non_finite.h"

namespace chimera {

// Finished subtrees, and one pending sum of each lower level.
std::int64_t spare_buffers(const std::vector<Subtree>& trees) {
  std::int64_t most = 0;
  for (std::size_t i = 0; i < trees.size(); ++i)
    most = std::max(most, static_cast<std::int64_t>(i) + std::max(trees[i].level, 1));
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
  for (auto& [replica, run] : runs_)
    for (auto& [tree, sum] : run.blocks.take()) parts.push_back(std::move(sum));
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

GradientSums::GradientSums(const WorkerContext& worker) : worker_(worker) {
  const ProgramShape& shape = worker.shape;
  for (const auto& [id, group] : worker.groups) {
    std::vector<std::int64_t>& sizes = shards_[id];
    // No entry would be an all-reduce too, but connect() reads one for each group.
    if (!shape.scatters) continue;
    sizes = shard_sizes(*group, shape.ranks.ranks_of({shape.groups[id.index()]}).front().size());
  }
  if (!is_canonical()) return;
  const auto accumulate = [&](StageId stage, ParameterGroupId group, const at::Tensor& gradients) {
    accumulators_.push_back({stage, group, BlockSums(gradients, shape.canonical->block_size)});
  };
  for (const auto& [id, stage] : worker.stages) accumulate(id, parameters_of(id), stage->gradients());
  if (worker.tied == nullptr) return;
  // Embedding and head add to the tied matrix in different micro-batch orders, so each has blocks of its own.
  const ParameterGroupId matrix = tied_matrix(shape.stages());
  const StageId first(0);
  const StageId last(shape.stages() - 1);
  if (worker.stages.contains(first)) accumulate(first, matrix, worker.tied->accumulators().front());
  if (worker.stages.contains(last)) accumulate(last, matrix, worker.tied->accumulators().back());
}

void GradientSums::connect() const {
  for (const auto& [id, group] : worker_.groups) worker_.transport.connect_sums(id, group->gradients(), shards_.at(id));
}

void GradientSums::start(ParameterGroupId id, Tracer* tracer) {
  ParameterGroup& group = *worker_.groups.at(id);
  if (fault_point("all-reduce")) inject_nan(group.gradients());
  // The subtrees of this rank from left to right: the transport adds them to those of other ranks by SumOrder.
  std::vector<at::Tensor> parts;
  for (Accumulator& sum : accumulators_) {
    if (sum.group != id) continue;
    for (at::Tensor& part : sum.blocks.take()) parts.push_back(std::move(part));
  }
  // With canonical sums, the subtrees of both accumulators are in `parts`.
  if (!is_canonical()) group.add_accumulators();
  auto pending = worker_.transport.start_sum(
      id, {.gradients = group.gradients(),
           .parts = std::move(parts),
           .order = is_canonical() ? &worker_.shape.canonical->orders[id.index()] : nullptr,
           .counts = worker_.shape.scatters ? shards_.at(id) : std::vector<std::int64_t>()});
  // The sum may end long before anyone waits for it; traces show when it did.
  if (tracer != nullptr) pending->call_when_done(tracer->all_reduce_callback(id));
  pending_.emplace(id, std::move(pending));
}

void GradientSums::wait(ParameterGroupId group) {
  take_out(pending_, group, [&] {
    return fmt::format("the gradient sum of parameter group {}", group.value());
  })->wait();
}

void GradientSums::open_block(const Op& op) {
  for (Accumulator& sum : accumulators_) {
    // Both accumulators of a tied matrix can be on one worker, each with the stage that adds to it.
    if (sum.stage == op.stage) sum.blocks.open(op.replica);
  }
}

void GradientSums::close_block(const Op& op) {
  if (op.slice > 0) return;  // Slices run in reverse order, so a micro-batch ends with its slice 0
  for (Accumulator& sum : accumulators_)
    if (sum.stage == op.stage) sum.blocks.close(worker_.shape.positions[op.micro_batch.index()]);
}

void GradientSums::drop() {
  pending_.clear();
  for (Accumulator& sum : accumulators_) sum.blocks.drop();
}

}  // namespace chimera
