#pragma once
// What the cells of a plain CSV say of the schedule's shape: as many stages and micro-batches as they name, one
// replica, each stage on the worker in whose row it stands first.

#include <algorithm>
#include <cstdint>
#include <optional>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

class CsvShape {
 public:
  /// Counts an op of worker w. Requires ids that are not negative; memory follows the largest stage.
  void add(const Op& op, std::size_t worker) {
    if (op.stage.index() >= worker_of_.size()) worker_of_.resize(op.stage.index() + 1);
    auto& holder = worker_of_[op.stage.index()];
    if (!holder) holder = WorkerId(static_cast<std::int64_t>(worker));
    num_micro_batches_ = std::max(num_micro_batches_, op.micro_batch.value() + 1);
  }

  [[nodiscard]] std::int64_t num_stages() const { return static_cast<std::int64_t>(worker_of_.size()); }
  [[nodiscard]] std::int64_t num_micro_batches() const { return num_micro_batches_; }
  /// A stage that no cell names counts as worker 0's; its ops are missing in any case.
  [[nodiscard]] Placement placement() const {
    Placement placement{{std::vector<WorkerId>(worker_of_.size())}};
    for (std::size_t s = 0; s < worker_of_.size(); ++s) {
      placement.worker_of[0][s] = worker_of_[s].value_or(WorkerId(0));
    }
    return placement;
  }

 private:
  std::vector<std::optional<WorkerId>> worker_of_;  // [stage]
  std::int64_t num_micro_batches_ = 0;
};

}  // namespace chimera
