#include "passes/unroll.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "core/error.h"

namespace chimera {
namespace {

using Ops = std::vector<Op>;

void require_unrollable(const Schedule& step, std::int64_t steps) {
  if (steps < 1) throw ConfigError(fmt::format("steps must be at least 1, not {}", steps));
  const std::int64_t slots = std::max(num_ops(step), step.stages * step.micro_batches);
  if (slots > kMostOps / steps) {
    throw ConfigError(fmt::format("{} steps of {} ops are more than {} ops; use fewer", steps, slots, kMostOps));
  }
  if (step.updates && step.placement.num_replicas() > 1) {
    throw ConfigError(fmt::format("schedule '{}' is asynchronous with {} replicas; only one can run without a flush",
                                  step.name, step.placement.num_replicas()));
  }
}

Ops shifted(const Ops& ops, std::int64_t micro_batches) {
  Ops result = ops;
  for (Op& op : result) op.micro_batch = MicroBatchId(op.micro_batch.value() + micro_batches);
  return result;
}

/// Appends a worker's next step behind the `drain` last ops of `stream`, or with its warm-up among them.
void append_without_flush(Ops& stream, std::size_t drain, const Ops& next, std::size_t warm_up) {
  const Ops draining(stream.end() - static_cast<std::ptrdiff_t>(drain), stream.end());
  stream.resize(stream.size() - drain);
  std::size_t taken = 0;
  for (const Op& op : draining) {
    stream.push_back(op);
    if (gives_weight_gradient(op.kind) && taken < warm_up) stream.push_back(next[taken++]);
  }
  stream.insert(stream.end(), next.begin() + static_cast<std::ptrdiff_t>(taken), next.end());
}

Ops stream_of(const Ops& step, std::int64_t steps, std::int64_t micro_batches, bool flush) {
  const auto is_forward = [](const Op& op) { return op.kind == OpKind::Forward; };
  const auto warm_up = static_cast<std::size_t>(std::find_if_not(step.begin(), step.end(), is_forward) - step.begin());
  const auto drain = static_cast<std::size_t>(std::find_if(step.rbegin(), step.rend(), is_forward) - step.rbegin());
  Ops stream;
  stream.reserve(step.size() * static_cast<std::size_t>(steps));
  for (std::int64_t k = 0; k < steps; ++k) {
    append_without_flush(stream, flush || k == 0 ? 0 : drain, shifted(step, k * micro_batches), warm_up);
  }
  return stream;
}

/// The versions of one stage's weights, as its worker's list goes by.
class StageVersions {
 public:
  StageVersions(const AsynchronousUpdates& updates, std::int64_t micro_batches)
      : updates_(updates),
        backwards_(static_cast<std::size_t>(micro_batches / updates.micro_batches + 1), 0),
        used_(static_cast<std::size_t>(micro_batches), 0) {}

  std::int64_t of(const Op& op) {
    std::int64_t& version = used_[op.micro_batch.index()];
    const std::int64_t update = op.micro_batch.value() / updates_.micro_batches;
    if (op.kind == OpKind::Forward) {
      version = updates_.delay ? std::max<std::int64_t>(0, update - *updates_.delay) : newest_;
    }
    if (gives_weight_gradient(op.kind)) {
      ++backwards_[static_cast<std::size_t>(update)];
      while (backwards_[static_cast<std::size_t>(newest_)] == updates_.micro_batches) ++newest_;
    }
    return version;
  }

 private:
  AsynchronousUpdates updates_;
  std::vector<std::int64_t> backwards_;  // [update]: of its micro-batches, done so far
  std::vector<std::int64_t> used_;       // [micro-batch]: the version of its ops
  std::int64_t newest_ = 0;
};

void state_versions(Schedule& stream) {
  for (auto& ops : stream.workers) {
    std::map<StageId, StageVersions> stages;
    for (Op& op : ops) {
      StageVersions& stage = stages.try_emplace(op.stage, *stream.updates, stream.micro_batches).first->second;
      op.weight_version = static_cast<std::int32_t>(stage.of(op));
    }
  }
}

}  // namespace

Schedule unroll(const Schedule& step, std::int64_t steps) {
  require_unrollable(step, steps);
  Schedule stream = step;
  stream.micro_batches = step.micro_batches * steps;
  for (auto& ops : stream.workers) ops = stream_of(ops, steps, step.micro_batches, !step.updates);
  if (step.updates) state_versions(stream);
  return stream;
}

}  // namespace chimera
