#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "check/violation.h"
#include "schedule/program.h"

namespace chimera {

/// What the workers of a program have done together so far: sums of the gradients of parameter groups over the workers
/// that hold them, and the sums of norms and losses over all, one a step. Requires a placement on the program's
/// workers.
class Collectives {
 public:
  explicit Collectives(const Program& program);

  [[nodiscard]] std::int64_t num_groups() const { return static_cast<std::int64_t>(groups_.size()); }
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
  /// Starts the worker's part of the sum. Returns whether all members have started now.
  bool start(std::size_t worker, ParameterGroupId group);
  void set_waited(std::size_t worker, ParameterGroupId group) { find(worker, group)->has_waited = true; }
  /// The sum of a group that the worker holds alone has been used: it may be summed again.
  void restart(std::size_t worker, ParameterGroupId group);

  /// How many sums of norms and losses the worker has finished, with the one it is in.
  [[nodiscard]] std::int64_t arrivals(std::size_t worker) const { return arrivals_[worker]; }
  /// Whether the worker is in the last step's sum of norms and losses, or has finished it.
  [[nodiscard]] bool has_arrived(std::size_t worker) const { return arrivals_[worker] == steps_; }
  /// Whether all workers have arrived in the sum that this worker is in.
  [[nodiscard]] bool all_arrived(std::size_t worker) const {
    return num_arrived_[static_cast<std::size_t>(arrivals_[worker] - 1)] == arrivals_.size();
  }
  void arrive(std::size_t worker);
  /// Some workers that have not arrived in the sum that the worker is in, ascending.
  [[nodiscard]] std::vector<std::size_t> first_missing(std::size_t worker, std::size_t most) const;

  /// Groups of several workers (or every stage), and the tied matrix, that this worker holds and has not started, or
  /// not waited for.
  [[nodiscard]] std::vector<ParameterGroupId> unfinished(std::size_t worker, bool every_stage) const;
  /// Adds a cycle in the orders in which workers start their all-reduces, if there is one.
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

  WorkerGroups groups_;                               // [group]
  ParameterGroupId tied_;                             // the tied matrix, if there is one
  std::vector<std::vector<Held>> held_;               // [worker], ascending by group
  std::vector<std::vector<ParameterGroupId>> order_;  // [worker]: its starts, those of stages it holds alone left out
  std::vector<std::size_t> num_started_;              // [group]
  std::int64_t steps_;
  std::vector<std::int64_t> arrivals_;    // [worker]
  std::vector<std::size_t> num_arrived_;  // [step]
};

/// Adds the deadlock of the workers that stand before instruction next[w] and cannot go on, if there are any.
/// Returns whether there are.
bool report_stuck(const Program& program, const std::vector<std::size_t>& next, const Collectives& collectives,
                  Findings& findings);

}  // namespace chimera
