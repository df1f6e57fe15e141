#pragma once
// Where the workers of a synchronous step start to sum gradients over the copies of a stage. A sum that starts early
// overlaps with the remaining ops, but also slows them, so the paper starts it early only on workers that would wait
// anyway (eager-opt). lower() and simulate() use the same places.

#include <cstdint>
#include <vector>

#include "core/choices.h"
#include "schedule/dependencies.h"

namespace chimera {

/// When a worker of a synchronous schedule starts the all-reduce of a stage. Source: Li and Hoefler, SC'21, section
/// 3.2.
enum class AllReducePlacement : std::uint8_t {
  Eager,     ///< Right after the stage's last backward on that worker
  EagerOpt,  ///< Like Eager if the worker later waits between two of its ops, else like Post
  Post,      ///< After the worker's last op
};
template <>
inline constexpr auto kNames<AllReducePlacement> =
    std::to_array<Named<AllReducePlacement>>({{AllReducePlacement::Post, "post"},
                                              {AllReducePlacement::Eager, "eager"},
                                              {AllReducePlacement::EagerOpt, "eager-opt"}});

struct AllReduceOptions {
  bool every_stage = false;  // Whether to include stages on a single worker, e.g. with several data-parallel groups
  AllReducePlacement placement = AllReducePlacement::EagerOpt;
  bool tied = false;  // Stage 0 and the last share a matrix
  friend bool operator==(const AllReduceOptions&, const AllReduceOptions&) = default;
};

struct AllReduceStart {
  ParameterGroupId group;
  std::int64_t after = -1;  // Position of the worker's op before the start; -1: before all ops
  friend bool operator==(const AllReduceStart&, const AllReduceStart&) = default;
};

/// Returns each worker's all-reduces in a synchronous step, in order of start: for each stage that several workers hold
/// (or every stage), and for a tied matrix (even with one owner, to add the gradients of its two uses).
///
/// All workers use one order: by the start of a stage's last backward on any worker. So groups that share workers
/// cannot deadlock, even if a collective waits for the one before it. An eager all-reduce starts after the stage's last
/// backward on the worker, and after all-reduces that are earlier in that order.
///
/// `start` is unit_start_times(table), so all processes compute the same order.
[[nodiscard]] std::vector<std::vector<AllReduceStart>> place_all_reduces(const OpTable& table,
                                                                         const std::vector<std::int64_t>& start,
                                                                         const AllReduceOptions& options);

}  // namespace chimera
