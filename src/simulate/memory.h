#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "schedule/schedule.h"
#include "schedule/timeline.h"
#include "simulate/costs.h"

// Which versions of its weights a worker of an asynchronous schedule keeps, and when.

// What a worker holds in memory over time; explain() says what is counted.

namespace chimera {

/// A version of one stage's weights that begins or ceases to be kept.
struct VersionChange {
  std::size_t after = 0;  // how many of the worker's ops come before it
  StageId stage;
  int change = 1;  // +1 made by an update, -1 discarded
};

/// All changes on a worker, in order, discarded versions before new ones; each held stage begins with one version. A
/// version is kept until the last op that uses it, and until the next one is made. A synchronous schedule has none.
[[nodiscard]] std::vector<VersionChange> version_changes(const Schedule& schedule, std::size_t worker);

/// Most versions of one stage that the worker keeps at once; 1 throughout a synchronous schedule.
[[nodiscard]] std::int64_t peak_weight_versions(const Schedule& schedule, std::size_t worker);

/// Finds the ops that complete an update: of each stage, every `updates->micro_batches`-th B or W.
class UpdateCounter {
 public:
  explicit UpdateCounter(const Schedule& schedule);
  /// Counts the op; true where an update of its stage follows it. Ops of a worker come in order.
  bool completes_update(const Op& op) {
    if (every_ == 0 || !gives_weight_gradient(op.kind)) return false;
    return ++done_[op.replica.index() * stages_ + op.stage.index()] % every_ == 0;
  }

 private:
  std::int64_t every_ = 0;  // 0: synchronous
  std::size_t stages_ = 0;
  std::vector<std::int64_t> done_;  // [replica][stage]
};

/// For every worker, what it holds from each point on. `messages` are all of the timeline's.
[[nodiscard]] std::vector<std::vector<MemoryPoint>> memory_over_time(const Schedule& schedule, const CostModel& costs,
                                                                     const Timeline& timeline,
                                                                     const std::vector<Message>& messages);

}  // namespace chimera
