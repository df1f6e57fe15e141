#pragma once
// When each worker launches the sums of the gradients of the stages it holds: the one rule that lowering follows and
// that predictions time.

#include <cstdint>
#include <vector>

#include "schedule/all_reduce_placement.h"
#include "schedule/dependencies.h"
#include "schedule/parameter_groups.h"

namespace chimera {

struct AllReduceOptions {
  bool every_stage = false;  // also those that one worker holds: where other groups run the schedule too, for example
  AllReducePlacement placement = AllReducePlacement::EagerOpt;
  bool tied = false;  // stage 0 and the last share a matrix
  friend bool operator==(const AllReduceOptions&, const AllReduceOptions&) = default;
};

/// A worker's part in summing gradients.
struct AllReduceStart {
  ParameterGroupId group;
  std::int64_t after = -1;  // position of the worker's op right after which it starts; -1: before all
  friend bool operator==(const AllReduceStart&, const AllReduceStart&) = default;
};

/// The all-reduces of a synchronous step ([worker], in the order of their starts): one for each stage held by several
/// workers, or for every stage, and of a tied model one for its matrix, which also adds up its two uses, on all of its
/// owners, be it one (gradient_groups); none where nothing runs backward. The matrix's backwards are those of stages 0
/// and S-1.
///
/// All workers start theirs in one order, that in which the stages' last backwards begin on any worker, so that groups
/// which share workers never wait for each other even where a collective starts only after the one before. So an eager
/// one stands after the stage's last backward on the worker, but not before those earlier in that order; where the
/// worker has none of the stage's backwards nothing holds it back.
///
/// `start` is unit_start_times(table): every process finds the same order and the same waits (EagerOpt) without
/// measuring, whatever the ops then take.
[[nodiscard]] std::vector<std::vector<AllReduceStart>> place_all_reduces(const OpTable& table,
                                                                         const std::vector<std::int64_t>& start,
                                                                         const AllReduceOptions& options);

}  // namespace chimera
