#pragma once
// Decides after which op each worker of a synchronous schedule starts the all-reduces of gradients (--sync). An
// all-reduce that starts early overlaps with the remaining ops, but also slows them. The paper therefore starts it
// early only on workers that would wait anyway (eager-opt). Both lower() and simulate() use the result.

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

/// Which all-reduces a step has, and when they start.
struct AllReduceOptions {
  // Whether to include stages that only one worker of the schedule holds: with several data-parallel groups, workers of
  // the other groups hold them too
  bool every_stage = false;
  AllReducePlacement placement = AllReducePlacement::EagerOpt;
  bool tied = false;  // Tied model: stage 0 and the last stage share a matrix, which has an all-reduce of its own
  friend bool operator==(const AllReduceOptions&, const AllReduceOptions&) = default;
};

/// Start of an all-reduce on one worker.
struct AllReduceStart {
  ParameterGroupId group;   // The stage, or the tied matrix
  std::int64_t after = -1;  // Position of the worker's op before the start; -1: before all ops
  friend bool operator==(const AllReduceStart&, const AllReduceStart&) = default;
};

/// Returns [worker]: its all-reduces in a synchronous step, in the order in which it starts them; none if there are no
/// backwards. There is one for each stage that several workers hold (or for every stage), and one for a tied matrix,
/// even if a single worker holds it, to add the gradients of its two uses.
///
/// All workers start their all-reduces in the same order: by the latest `start` of the group's backwards on all
/// workers. So all-reduces cannot deadlock, even if a collective waits for the one before it. An eager all-reduce
/// starts after the stage's last backward on the worker, and after the all-reduces that precede it in this order.
///
/// `start`: [op], the result of unit_start_times(table) (dependencies.h). It contains no measured times, so all
/// processes compute the same order.
[[nodiscard]] std::vector<std::vector<AllReduceStart>> place_all_reduces(const OpTable& table,
                                                                         const std::vector<std::int64_t>& start,
                                                                         const AllReduceOptions& options);

}  // namespace chimera
