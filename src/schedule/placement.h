#pragma once
// Which worker holds each stage (consecutive layers), for each replica of the model. Bidirectional schedules have
// several replicas (schedule.h).

#include <vector>

#include "core/ids.h"

namespace chimera {

/// worker_of[r][s]: the worker that holds stage s of replica r. worker() requires both in range.
struct Placement {
  std::vector<std::vector<WorkerId>> worker_of;
  [[nodiscard]] WorkerId worker(ReplicaId replica, StageId stage) const {
    return worker_of[replica.index()][stage.index()];
  }
  [[nodiscard]] std::size_t num_replicas() const { return worker_of.size(); }
  friend bool operator==(const Placement&, const Placement&) = default;
};

}  // namespace chimera
