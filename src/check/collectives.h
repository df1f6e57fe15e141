#pragma once
// The state of all-reduces and of the sums of norms and losses in a run that check_program.h checks, and its report of
// a deadlock.

#include <cstddef>
#include <cstdint>
#include <vector>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// Progress of a program's all-reduces and of its sums of norms and losses, one sum per step. Requires a valid
/// placement.
class Collectives {
 public:
  explicit Collectives(const Program& program);

  [[nodiscard]] const std::vector<WorkerId>& members(ParameterGroupId group) const { return groups_[group.index()]; }
  [[nodiscard]] bool holds(std::size_t worker, ParameterGroupId group) const { return find(worker, group) != nullptr; }
  [[nodiscard]] bool has_started(std::size_t worker, ParameterGroupId group) const {
    return find(worker, group)->has_started;
  }
  [[nodiscard]] bool has_waited(std::size_t worker, ParameterGroupId group) const {
    return find(worker, group)->has_waited;
  }
  [[nodiscard]] bool is_complete(ParameterGroupId group) const {
    return num_started_[group.index()] == members(group).size();
  }
  /// Records that the worker has started the group's all-reduce. Returns whether all members have started it.
  bool start(std::size_t worker, ParameterGroupId group);
  void set_waited(std::size_t worker, ParameterGroupId group) { find(worker, group)->has_waited = true; }
  /// Allows another all-reduce after an update (UpdateWeights). The worker must be the group's only member.
  void restart(std::size_t worker, ParameterGroupId group);

  [[nodiscard]] std::int64_t arrivals(std::size_t worker) const { return arrivals_[worker]; }
  /// Returns whether the worker has joined the last step's sum of norms and losses.
  [[nodiscard]] bool has_arrived(std::size_t worker) const { return arrivals_[worker] == steps_; }
  /// Returns whether all workers have joined the worker's latest sum. The worker must have joined one.
  [[nodiscard]] bool all_arrived(std::size_t worker) const {
    return num_arrived_[static_cast<std::size_t>(arrivals_[worker] - 1)] == arrivals_.size();
  }
  void arrive(std::size_t worker);
  /// Returns up to `most` workers that have not joined the worker's latest sum.
  [[nodiscard]] std::vector<std::size_t> first_missing(std::size_t worker, std::size_t most) const;

  /// Returns the worker's groups whose all-reduce it has not started or not waited for. Unless `every_stage`, omits
  /// groups whose only member is the worker, except the tied matrix.
  [[nodiscard]] std::vector<ParameterGroupId> unfinished(std::size_t worker, bool every_stage) const;
  /// Adds a violation if workers start all-reduces in orders that form a cycle.
  void check_order(Findings& findings) const;

 private:
  struct Held {
    ParameterGroupId group;
    bool has_started = false;
    bool has_waited = false;
  };

  [[nodiscard]] const Held* find(std::size_t worker, ParameterGroupId group) const;
  Held* find(std::size_t worker, ParameterGroupId group) {
    return const_cast<Held*>(static_cast<const Collectives*>(this)->find(worker, group));
  }

  WorkerGroups groups_;                  // [group]
  ParameterGroupId tied_;                // Group of the tied matrix, if any
  std::vector<std::vector<Held>> held_;  // [worker], ascending by group
  // [worker]: all-reduces in order of start, without groups of a single member
  std::vector<std::vector<ParameterGroupId>> order_;
  std::vector<std::size_t> num_started_;  // [group]
  std::int64_t steps_;
  std::vector<std::int64_t> arrivals_;    // [worker]
  std::vector<std::size_t> num_arrived_;  // [step]
};

/// Adds a violation if a worker did not reach the end of its instructions, and returns whether that is so. `next`
/// [worker] is the index of its first instruction that did not run.
bool report_deadlock(const Program& program, const std::vector<std::size_t>& next, const Collectives& collectives,
                     Findings& findings);

}  // namespace chimera
