#pragma once

// Finds the weight updates within an asynchronous schedule, and the versions of a stage's weights that they create.
// (Such a schedule updates weights while micro-batches are in flight; their backwards still use the older versions.)
// Which op completes an update, and how long a version is kept, depends only on the order of the ops, not on their
// times. The simulator, memory_over_time() (simulate/explain.h), check_limits() and place_updates() (passes/lower.h)
// use these functions.

#include <cstddef>

#include "schedule/schedule.h"

namespace chimera {

/// Finds the ops that complete an update. A replica updates a stage after every Schedule::updates->micro_batches ops
/// that give a weight gradient of that stage (a whole backward B, or W if it is split). Finds none in a synchronous
/// schedule.
class UpdateCounter {
 public:
  explicit UpdateCounter(const Schedule& schedule);
  /// Counts the op and returns whether it completes an update. Call it once for each op, in each worker's order; the
  /// ops of several workers may alternate.
  bool completes_update(const Op& op) {
    if (every_ == 0 || !gives_weight_gradient(op.kind)) return false;
    return ++done_[op.replica.index() * stages_ + op.stage.index()] % every_ == 0;
  }

 private:
  std::int64_t every_ = 0;  // 0: synchronous
  std::size_t stages_ = 0;
  std::vector<std::int64_t> done_;  // [replica][stage]
};

/// Start or end of the lifetime of a version of a stage's weights.
struct VersionChange {
  std::size_t after = 0;  // number of the worker's ops before it
  Op op;  // last use of the discarded version, or last gradient of the update; weight_version is the changed version
  int change = 1;  // +1: created by an update, -1: discarded
};

/// Returns all changes on a worker in order. After the same op, a stage's discards come before its creations. Each
/// stage of the worker starts with one version, which is not listed as a creation. A version is discarded after its
/// last use, but not before the next version exists. Gradients that remain at the worker's end, too few for an update,
/// make one more version. Returns nothing for a synchronous schedule.
[[nodiscard]] std::vector<VersionChange> version_changes(const Schedule& schedule, std::size_t worker);

/// Returns the maximum number of versions of a stage on the worker; 1 for a synchronous schedule.
[[nodiscard]] std::int64_t peak_weight_versions(const Schedule& schedule, std::size_t worker);

}  // namespace chimera
