#include "runtime/gradient_sums.h"

#include <fmt/format.h>

#include <utility>

#include "core/fault_point.h"
#include "core/invariant.h"
#include "model/parameter_group.h"
#include "runtime/non_finite.h"

namespace chimera {

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
