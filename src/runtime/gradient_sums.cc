#include "runtime/gradient_sums.h"

#include <fmt/format.h>

#include <utility>

#include "core/fault_point.h"
#include "core/invariant.h"
#include "runtime/non_finite.h"

namespace chimera {

GradientSums::GradientSums(const WorkerContext& worker) : worker_(worker) {
  const ProgramShape& shape = worker.shape;
  for (const auto& [id, group] : worker.groups) {
    std::vector<std::int64_t>& sizes = shards_[id];
    if (!shape.scatters) continue;
    sizes = shard_sizes(*group, shape.ranks.ranks_of({shape.groups[id.index()]}).front().size());
  }
  if (shape.canonical != nullptr) canonical_.emplace(shape, worker.stages, worker.tied);
}

void GradientSums::connect() const {
  for (const auto& [id, group] : worker_.groups) {
    worker_.transport.connect_sums(id, group->gradients(), shards_.at(id));
  }
}

void GradientSums::start(ParameterGroupId group, Tracer* tracer) {
  if (fault_point("all-reduce")) inject_nan(worker_.groups.at(group)->gradients());
  auto pending = start(group);
  if (tracer != nullptr) pending->call_when_done(tracer->summed(group));
  pending_.emplace(group, std::move(pending));
}

std::unique_ptr<Pending> GradientSums::start(ParameterGroupId id) {
  ParameterGroup& group = *worker_.groups.at(id);
  const SumOrder* order = canonical_ ? &worker_.shape.canonical->orders[id.index()] : nullptr;
  std::vector<at::Tensor> parts;
  if (canonical_) {
    parts = canonical_->take(id);
  } else {
    group.add_accumulators();
  }
  return worker_.transport.start_sum(id,
                                     {.gradients = group.gradients(),
                                      .parts = std::move(parts),
                                      .order = order,
                                      .counts = worker_.shape.scatters ? shards_.at(id) : std::vector<std::int64_t>()});
}

void GradientSums::wait(ParameterGroupId group) {
  take_out(pending_, group, [&] {
    return fmt::format("the gradient sum of parameter group {}", group.value());
  })->wait();
}

void GradientSums::open_block(const Op& op) {
  if (canonical_) canonical_->open(op);
}

void GradientSums::close_block(const Op& op) {
  if (canonical_) canonical_->close(op);
}

void GradientSums::drop() {
  pending_.clear();
  if (canonical_) canonical_->drop();
}

}  // namespace chimera
