#include "schedule/weight_versions.h"

#include <algorithm>
#include <map>
#include <utility>

namespace chimera {
namespace {

/// Versions of a copy of a stage: number of ops up to the last gradient of each version, and up to its last use.
struct Versions {
  std::vector<std::size_t> made = {0};
  std::vector<std::size_t> used = {0};
  std::size_t rest = 0;  // Number of ops up to the last gradient, if it is of no complete update; else 0
};

using Copies = std::map<std::pair<ReplicaId, StageId>, Versions>;

/// Finds for each version when it was made and when it was used last. Ops name their version; a version is made by an
/// update.
Copies versions_of(const Schedule& schedule, std::size_t worker) {
  UpdateCounter counter(schedule);
  Copies copies;
  const auto& ops = schedule.workers[worker];
  for (std::size_t i = 0; i < ops.size(); ++i) {
    Versions& versions = copies[{ops[i].replica, ops[i].stage}];
    // A user's schedule may name any version. Versions beyond the number of ops cannot exist and share one entry, so
    // that memory stays linear in the ops.
    const auto version = static_cast<std::size_t>(std::max(ops[i].weight_version, 0));
    if (version >= versions.used.size()) versions.used.resize(std::min(version, ops.size()) + 1, 0);
    versions.used[std::min(version, ops.size())] = i + 1;
    if (gives_weight_gradient(ops[i].kind)) versions.rest = i + 1;
    if (counter.completes_update(ops[i])) versions.made.push_back(std::exchange(versions.rest, 0));
  }
  return copies;
}

}  // namespace

UpdateCounter::UpdateCounter(const Schedule& schedule) {
  if (!schedule.updates) return;
  every_ = schedule.updates->micro_batches;
  stages_ = static_cast<std::size_t>(schedule.stages);
  done_.resize(stages_ * schedule.placement.num_replicas());
}

std::vector<VersionChange> version_changes(const Schedule& schedule, std::size_t worker) {
  std::vector<VersionChange> changes;
  if (!schedule.updates) return changes;
  const auto& ops = schedule.workers[worker];
  const auto add = [&](std::size_t after, std::size_t op, std::size_t version, int change) {
    changes.push_back({after, ops[op - 1], change});
    changes.back().op.weight_version = static_cast<std::int32_t>(version);
  };
  for (const auto& [copy, versions] : versions_of(schedule, worker)) {
    for (std::size_t v = 1; v < versions.made.size() + (versions.rest > 0 ? 1 : 0); ++v) {
      const bool is_rest = v == versions.made.size();
      const std::size_t gradient = is_rest ? versions.rest : versions.made[v];
      const std::size_t made = is_rest ? ops.size() : gradient;
      const std::size_t used = v - 1 < versions.used.size() ? versions.used[v - 1] : 0;
      // Until the next version exists, this one is the newest, and is kept even if no op uses it any more. It is listed
      // before its replacement, so that a version that is replaced without a further use does not raise the peak.
      add(std::max(used, made), used > made ? used : gradient, v - 1, -1);
      add(made, gradient, v, +1);
    }
  }
  std::ranges::stable_sort(changes, {}, &VersionChange::after);
  return changes;
}

std::int64_t peak_weight_versions(const Schedule& schedule, std::size_t worker) {
  std::map<StageId, std::int64_t> kept;
  std::int64_t peak = 1;
  for (const VersionChange& change : version_changes(schedule, worker)) {
    const auto held = kept.emplace(change.op.stage, 1).first;
    held->second += change.change;
    peak = std::max(peak, held->second);
  }
  return peak;
}

}  // namespace chimera
