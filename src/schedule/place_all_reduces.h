#pragma once
// Where each worker starts to sum the gradients of the stages it holds.

#include <cstdint>
#include <vector>

#include "schedule/all_reduce_placement.h"
#include "schedule/dependencies.h"
#include "schedule/timeline.h"

namespace chimera {

struct AllReduceOptions {
  bool every_stage = false;  // also those that one worker holds: where other groups run the schedule too, for example
  AllReducePlacement placement = AllReducePlacement::Eager;
  const Timeline* timeline = nullptr;  // of the schedule, borrowed: what EagerOpt needs, and only that
  bool tied = false;                   // stage 0 and the last share a matrix
};

/// A worker's part in summing the gradients of one stage.
struct AllReduceStart {
  StageId stage;            // S: the tied matrix
  std::int64_t after = -1;  // position of the worker's op right after which it starts; -1: before all
  friend bool operator==(const AllReduceStart&, const AllReduceStart&) = default;
};

/// The all-reduces of every worker ([worker], in the order of their starts): one for each stage held by several
/// workers, or for every stage, and of a tied model one for its matrix, which also adds up its two uses, on all of its
/// owners, be it one (gradient_groups); none where nothing runs backward. The matrix counts as a stage S whose
/// backwards are those of stages 0 and S-1.
///
/// All workers start theirs in one order, that in which the stages' last backwards begin on any worker (`start`, of
/// unit_start_times), so that groups which share workers never wait for each other even where a collective starts only
/// after the one before. So an eager one stands after the stage's last backward on the worker, but not before those
/// earlier in that order; where the worker has none of the stage's backwards nothing holds it back.
[[nodiscard]] std::vector<std::vector<AllReduceStart>> place_all_reduces(const OpTable& table,
                                                                         const std::vector<std::int64_t>& start,
                                                                         const AllReduceOptions& options);

}  // namespace chimera
