#pragma once

#include <cstddef>
#include <optional>
#include <vector>

#include "check/findings.h"
#include "schedule/program.h"

namespace chimera {

/// What the workers of a program have done together so far: sums of a stage's gradients over the workers that hold it
/// (the matrix of a tied model is a stage S, held by its owners), and the one sum of norms and losses over all.
/// Requires a placement on the program's workers.
class Collectives {
 public:
  explicit Collectives(const Program& program);

  [[nodiscard]] std::int64_t num_groups() const { return static_cast<std::int64_t>(groups_.size()); }
  [[nodiscard]] const std::vector<WorkerId>& group(StageId stage) const { return groups_[stage.index()]; }
  [[nodiscard]] bool holds(std::size_t worker, StageId stage) const { return find(worker, stage) != nullptr; }
  [[nodiscard]] bool has_started(std::size_t worker, StageId stage) const { return find(worker, stage)->has_started; }
  [[nodiscard]] bool has_waited(std::size_t worker, StageId stage) const { return find(worker, stage)->has_waited; }
  [[nodiscard]] bool is_complete(StageId stage) const { return num_started_[stage.index()] == group(stage).size(); }
  /// Whether that completes the sum.
  bool start(std::size_t worker, StageId stage);
  void set_waited(std::size_t worker, StageId stage) { find(worker, stage)->has_waited = true; }

  /// The worker is in the sum of norms and losses, or through.
  [[nodiscard]] bool has_arrived(std::size_t worker) const { return has_arrived_[worker]; }
  [[nodiscard]] bool all_arrived() const { return num_arrived_ == has_arrived_.size(); }
  void arrive(std::size_t worker);
  /// Some workers that have not arrived, ascending.
  [[nodiscard]] std::vector<std::size_t> first_missing(std::size_t most) const;

  /// Stages of several workers, and the tied matrix, that this worker holds and has not started, or not waited for.
  [[nodiscard]] std::vector<StageId> unfinished(std::size_t worker) const;
  /// Adds a cycle in the orders in which workers start their all-reduces, if there is one.
  void check_order(Findings& findings) const;

 private:
  struct Held {
    StageId stage;
    bool has_started = false;
    bool has_waited = false;
  };

  [[nodiscard]] const Held* find(std::size_t worker, StageId stage) const;
  Held* find(std::size_t worker, StageId stage) {
    return const_cast<Held*>(static_cast<const Collectives*>(this)->find(worker, stage));
  }

  std::vector<std::vector<WorkerId>> groups_;  // [stage]
  std::size_t tied_;                           // S: the tied matrix, if there is one
  std::vector<std::vector<Held>> held_;        // [worker], ascending by stage
  std::vector<std::vector<StageId>> order_;    // [worker]: its starts
  std::vector<std::size_t> num_started_;       // [stage]
  std::vector<bool> has_arrived_;              // [worker]
  std::size_t num_arrived_ = 0;
};

/// Adds the deadlock of the workers that stand before instruction next[w] and cannot go on, if there are any.
/// Returns whether there are.
bool report_stuck(const Program& program, const std::vector<std::size_t>& next, const Collectives& collectives,
                  Findings& findings);

}  // namespace chimera
