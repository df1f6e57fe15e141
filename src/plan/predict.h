#pragma once

// Predicts step time and memory of a candidate (candidate.h) by simulation (src/simulate). For schedules whose
// generator has a PaperModel (generate/generator.h), also predicts the step time by equation 1 of the Chimera paper
// (equation_one.h).
//
//     Candidate --> schedule, partition, StageModel (PlannedSchedule) --> simulate() and explain() --> Prediction
//
// make_plan() (plan.h) predicts hundreds of candidates, so a Predictor caches schedules, and stops early for slow
// candidates (predict_below()). `chimera train --dry-run` predicts a single candidate.

#include <memory>
#include <unordered_map>

#include "plan/candidate.h"
#include "plan/equation_one.h"
#include "plan/stage_model.h"
#include "schedule/timeline.h"

namespace chimera {

/// Predicted time and memory of a candidate. It has the workers of one data-parallel group, because all groups run
/// alike.
struct Prediction {
  double step_seconds = 0;                            // simulated
  double sequences_per_second = 0;                    // mini-batch over `step_seconds`
  double bubble_ratio = 0;                            // idle time of all workers, divided by their total time
  double peak_memory_bytes = 0;                       // maximum over workers
  std::vector<double> worker_bytes;                   // [worker]: peak of memory
  std::vector<double> worker_busy;                    // [worker]: seconds of a step in ops
  std::vector<double> worker_bubble;                  // [worker]: fraction of the step in which it is idle
  bool fits = true;                                   // whether peak_memory_bytes fits in the problem's memory
  double busy_seconds = 0;                            // mean time in ops over workers, including recomputation
  std::array<double, kIdleCauses> idle_seconds = {};  // mean idle time over workers, by IdleCause (timeline.h)
  std::optional<EquationOne> paper;                   // result of equation 1; nothing without a PaperModel
};

/// Schedule, partition and costs of a candidate.
struct PlannedSchedule {
  std::shared_ptr<const Schedule> schedule;
  std::vector<StageLayers> partition;
  StageModel model;
  const PaperModel* paper = nullptr;  // null if equation 1 does not apply to the schedule
};

/// Predicts candidates of one planning problem. Keeps generated schedules, because many candidates have the same. Not
/// thread-safe. All functions throw as prepare() does.
class Predictor {
 public:
  explicit Predictor(PlanProblem problem) : problem_(std::move(problem)) {}

  [[nodiscard]] const PlanProblem& problem() const { return problem_; }
  /// Returns a predictor for the same problem with other memory per worker. Shares the cached schedules.
  [[nodiscard]] Predictor with_memory(double bytes) const {
    Predictor other(*this);
    other.problem_.memory_bytes = bytes;
    return other;
  }
  /// Replaces the problem's machine; keeps the cached schedules.
  void set_machine(const MachineProfile& machine) { problem_.machine = machine; }
  /// Builds schedule, partition and costs. Throws ConfigError if the schedule does not accept the shape, the model has
  /// fewer layers than stages, or the machine has no times for a layer.
  [[nodiscard]] PlannedSchedule prepare(const Candidate& candidate);
  /// Prepares and simulates a step.
  [[nodiscard]] Prediction predict(const Candidate& candidate) { return predict(prepare(candidate), candidate); }
  /// Simulates a step. `planned` is the result of prepare(candidate).
  [[nodiscard]] Prediction predict(const PlannedSchedule& planned, const Candidate& candidate) const;
  /// Predicts as predict() does, but stops early and returns nothing if a step takes `seconds` or longer.
  [[nodiscard]] std::optional<Prediction> predict_below(double seconds, const PlannedSchedule& planned,
                                                        const Candidate& candidate) const;
  /// Returns the simulated step time. If `on_own_cores`, assumes that every worker has cores of its own, without any
  /// contention.
  [[nodiscard]] double step_seconds(const PlannedSchedule& planned, const Candidate& candidate,
                                    bool on_own_cores = false) const;

 private:
  [[nodiscard]] std::shared_ptr<const Schedule> schedule_of(const Candidate& candidate);

  PlanProblem problem_;
  std::unordered_map<std::string, std::shared_ptr<const Schedule>> schedules_;  // keyed by shape
  std::int64_t kept_ops_ = 0;                                                   // total number of ops in schedules_
};

/// Returns [candidate]: a lower bound of its step time, without generating its schedule: the total time of all ops
/// divided by the number of workers. For a synchronous schedule that neither halves nor slices micro-batches, the bound
/// is at least the time of one micro-batch through all stages and back.
[[nodiscard]] std::vector<double> least_step_seconds(const PlanProblem& problem,
                                                     const std::vector<Candidate>& candidates);

}  // namespace chimera
