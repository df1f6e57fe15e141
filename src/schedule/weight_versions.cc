#include "schedule/weight_versions.h"

#include <algorithm>
#include <map>
#include <utility>

namespace chimera {
namespace {

/// Versions of a copy of a stage: number of ops before each version's creation, and up to its last use.
struct Versions {
  std::vector<std::size_t> made = {0};
  std::vector<std::size_t> used = {0};
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
    if (counter.completes_update(ops[i])) versions.made.push_back(i + 1);
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
  for (const auto& [copy, versions] : versions_of(schedule, worker)) {
    for (std::size_t v = 1; v < versions.made.size(); ++v) {
      changes.push_back({versions.made[v], copy.second, +1});
      const std::size_t used = v - 1 < versions.used.size() ? versions.used[v - 1] : 0;
      // Until the next version exists, this one is the newest, and is kept even if no op uses it any more.
      changes.push_back({std::max(used, versions.made[v]), copy.second, -1});
    }
  }
  // Of the changes after one op, -1 sorts before +1: a version that is replaced without a further use does not raise
  // the peak.
  std::stable_sort(changes.begin(), changes.end(), [](const VersionChange& a, const VersionChange& b) {
    return std::pair(a.after, a.change) < std::pair(b.after, b.change);
  });
  return changes;
}

std::int64_t peak_weight_versions(const Schedule& schedule, std::size_t worker) {
  std::map<StageId, std::int64_t> kept;
  std::int64_t peak = 1;
  for (const VersionChange& change : version_changes(schedule, worker)) {
    const auto held = kept.emplace(change.stage, 1).first;
    held->second += change.change;
    peak = std::max(peak, held->second);
  }
  return peak;
}

}  // namespace chimera
