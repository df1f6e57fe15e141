#include "generate/interleaved_one_f_one_b.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/error.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr const char* kInterleaved = "interleaved-1f1b";

void require_chunks(const PipelineShape& shape) {
  if (shape.chunks < 1)
    throw ConfigError(fmt::format("{}: --chunks must be at least 1, not {}", kInterleaved, shape.chunks));
  if (shape.chunks > kMostOps / 2 / (shape.stages * shape.micro_batches)) {
    throw ConfigError(
        fmt::format("{}: {} workers times {} chunks times {} micro-batches are more than {} ops; use fewer",
                    kInterleaved, shape.stages, shape.chunks, shape.micro_batches, kMostOps));
  }
}

/// g: how many micro-batches run at a stage before the worker turns to its next one.
std::int64_t group_size(const PipelineShape& shape) {
  const std::int64_t groups = std::max<std::int64_t>(1, shape.micro_batches / shape.stages);
  if (shape.micro_batches % groups != 0) {
    throw ConfigError(fmt::format(
        "{}: --micro-batches must be a multiple of N div D = {}, not {} (N below D or a multiple of D always is)",
        kInterleaved, groups, shape.micro_batches));
  }
  return shape.micro_batches / groups;
}

}  // namespace

Schedule interleaved_one_f_one_b(const PipelineShape& shape) {
  require_sane(kInterleaved, shape);
  require_chunks(shape);
  const std::int64_t depth = shape.stages;
  const std::int64_t chunks = shape.chunks;
  const std::int64_t group = group_size(shape);
  const std::int64_t passes = shape.micro_batches * chunks;  // forwards of a worker

  Schedule schedule{kInterleaved, depth * chunks, shape.micro_batches, {}, {}};
  auto& worker_of = schedule.placement.worker_of.emplace_back();
  for (std::int64_t s = 0; s < schedule.stages; ++s) worker_of.emplace_back(s % depth);

  schedule.workers.resize(static_cast<std::size_t>(depth));
  for (std::int64_t r = 0; r < depth; ++r) {
    auto& ops = schedule.workers[static_cast<std::size_t>(r)];
    const auto add = [&](OpKind kind, std::int64_t k) {
      const std::int64_t turn = k % (group * chunks) / group;
      const std::int64_t chunk = kind == OpKind::Forward ? turn : chunks - 1 - turn;
      const std::int64_t micro_batch = k / (group * chunks) * group + k % group;
      ops.push_back({kind, ReplicaId(0), StageId(chunk * depth + r), MicroBatchId(micro_batch)});
    };
    const std::int64_t warm_up = std::min(2 * (depth - 1 - r) + (chunks - 1) * group, passes);
    for (std::int64_t k = 0; k < warm_up; ++k) add(OpKind::Forward, k);
    for (std::int64_t k = 0; k < passes; ++k) {
      if (warm_up + k < passes) add(OpKind::Forward, warm_up + k);
      add(OpKind::Backward, k);
    }
  }
  return schedule;
}

}  // namespace chimera
