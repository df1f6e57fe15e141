#pragma once

#include <cstdint>
#include <vector>

#include "core/choices.h"
#include "schedule/dependencies.h"

// When each worker launches the sums of the gradients of the stages it holds: the one rule that lowering follows and
// that predictions time.

namespace chimera {

/// When a worker of a synchronous schedule launches the sum of a stage's gradients.
/// Source: Li and Hoefler, SC'21, section 3.2.
enum class AllReducePlacement : std::uint8_t {
  Eager,     ///< right after the stage's last backward on that worker
  EagerOpt,  ///< so where the worker has a bubble between that and its last op, else after its last op
  Post,      ///< after the worker's last op
};
template <>
inline constexpr auto kNames<AllReducePlacement> =
    std::to_array<Named<AllReducePlacement>>({{AllReducePlacement::Post, "post"},
                                              {AllReducePlacement::Eager, "eager"},
                                              {AllReducePlacement::EagerOpt, "eager-opt"}});

struct AllReduceOptions {
  bool every_stage = false;  // also stages that one worker holds, as where other groups run the schedule too
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

/// The all-reduces of a synchronous step, [worker], in the order in which they start: one for each stage that several
/// workers hold (or for every stage). A tied model has one more for its matrix, on all owners of it, even a single
/// one, as it also adds the gradients of both uses (gradient_groups). The matrix's backwards are those of stages 0 and
/// S-1.
///
/// All workers start them in one order: that in which the stages' last backwards begin on any worker. So groups that
/// share workers never wait for each other, even where a collective starts only after the one before. An eager one
/// stands after the stage's last backward on the worker (if it has any), and after the ones that come earlier in that
/// order.
///
/// `start` is unit_start_times(table): every process finds the same order and the same waits (EagerOpt) without
/// measuring, whatever the ops then take.
[[nodiscard]] std::vector<std::vector<AllReduceStart>> place_all_reduces(const OpTable& table,
                                                                         const std::vector<std::int64_t>& start,
                                                                         const AllReduceOptions& options);

}  // namespace chimera
