#pragma once
// The part of check() (check_program.h) about sums over several workers. check() executes a program without tensors.
// Meanwhile, Collectives records which workers have started each all-reduce of gradients and waited for it, and which
// have joined the sum of norms and losses at the end of each step (the instruction ReduceScalars). report_deadlock()
// describes the workers that never finish.

#include <cstddef>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// Progress of a program's collectives while check() executes it. A parameter group is the parameters of a stage, or
/// the matrix that the first and last stage of a tied model share. Its *members*, the workers that hold it, sum its
/// gradients in one all-reduce. Requires a program with a valid placement. Functions with a worker and a group, except
/// find(), require that the worker is a member.
class Collectives {
 public:
  explicit Collectives(const Program& program);

  [[nodiscard]] const std::vector<WorkerId>& members(ParameterGroupId group) const { return groups_[group.index()]; }
  /// A member's part in the all-reduce of a group.
  struct Held {
    ParameterGroupId group;
    bool has_started = false;
    bool has_waited = false;
  };
  /// Returns the worker's part in the group's all-reduce; null if the worker is not a member.
  [[nodiscard]] const Held* find(std::size_t worker, ParameterGroupId group) const;
  /// Returns whether all members have started the group's all-reduce.
  [[nodiscard]] bool is_complete(ParameterGroupId group) const {
    return num_started_[group.index()] == members(group).size();
  }
  /// Records that the worker has started the group's all-reduce. Returns whether all members have started it.
  bool start(std::size_t worker, ParameterGroupId group);
  void set_waited(std::size_t worker, ParameterGroupId group) { own(worker, group)->has_waited = true; }
  /// Allows another all-reduce of the group after the worker has run UpdateWeights (asynchronous schedules). The worker
  /// must be the group's only member.
  void restart(std::size_t worker, ParameterGroupId group);

  /// Returns how many sums of norms and losses (ReduceScalars) the worker has joined so far; it joins one per step.
  [[nodiscard]] std::int64_t arrivals(std::size_t worker) const { return arrivals_[worker]; }
  /// Returns whether the worker has joined the last step's sum of norms and losses.
  [[nodiscard]] bool has_arrived(std::size_t worker) const { return arrivals_[worker] == steps_; }
  /// Returns whether the worker must join the sums of norms and losses: whether it holds a stage. Lost workers do not.
  [[nodiscard]] bool joins(std::size_t worker) const { return !held_[worker].empty(); }
  /// Returns whether all workers that join have joined the worker's latest sum. The worker must have joined one.
  [[nodiscard]] bool all_arrived(std::size_t worker) const {
    return num_arrived_[static_cast<std::size_t>(arrivals_[worker] - 1)] == num_joining_;
  }
  /// Records that the worker has joined its next sum of norms and losses.
  void arrive(std::size_t worker);
  /// Returns up to `most` workers that have not joined the worker's latest sum.
  [[nodiscard]] std::vector<std::size_t> first_missing(std::size_t worker, std::size_t most) const;

  /// Returns the worker's groups whose all-reduce it has not started or not waited for. Groups with a single member
  /// need no all-reduce, except for a tied matrix, which both ends of the pipeline use, or if `every_stage`
  /// (SummedStages::All in check_program.h).
  [[nodiscard]] std::vector<ParameterGroupId> unfinished(std::size_t worker, bool every_stage) const;
  /// Adds a violation if workers start all-reduces in orders that form a cycle.
  void check_order(Findings& findings) const;

 private:
  Held* own(std::size_t worker, ParameterGroupId group) {
    return const_cast<Held*>(static_cast<const Collectives*>(this)->find(worker, group));
  }

  WorkerGroups groups_;                  // [group]
  ParameterGroupId tied_;                // Group of the tied matrix, if any
  std::vector<std::vector<Held>> held_;  // [worker], ascending by group
  // [worker]: all-reduces in order of start, without groups of a single member
  std::vector<std::vector<ParameterGroupId>> order_;
  std::vector<std::size_t> num_started_;  // [group]
  std::int64_t steps_;
  std::size_t num_joining_ = 0;           // Workers that join sums of norms and losses
  std::vector<std::int64_t> arrivals_;    // [worker]
  std::vector<std::size_t> num_arrived_;  // [step]
};

/// Returns whether a worker did not reach the end of its instructions. If so, adds a violation that names the workers
/// that wait for each other. `next` [worker] is the index of the worker's first instruction that did not run.
bool report_deadlock(const Program& program, const std::vector<std::size_t>& next, const Collectives& collectives,
                     Findings& findings);

}  // namespace chimera
