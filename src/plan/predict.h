#pragma once

// Predicts step time and memory of a candidate (candidate.h) by simulation. If the schedule has a closed form, also
// predicts the step time by equation 1 of the Chimera paper (equation_one.h).
//
//     Candidate --> schedule, partition, StageModel (PlannedSchedule) --> simulate() and explain() --> Prediction
//
// make_plan() (plan.h) calls it for hundreds of candidates, so schedules are cached and slow candidates end early
// (predict_below). `chimera train --dry-run` predicts a single one.

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "plan/candidate.h"
#include "plan/equation_one.h"
#include "plan/stage_model.h"
#include "schedule/timeline.h"

namespace chimera {

struct Prediction {
  double step_seconds = 0;                            // simulated
  double sequences_per_second = 0;                    // mini-batch over `step_seconds`
  double bubble_ratio = 0;                            // idle time over all workers' time
  double peak_memory_bytes = 0;                       // maximum over workers
  std::vector<double> worker_bytes;                   // [worker of a group]: peak
  std::vector<double> worker_busy;                    // [worker of a group]: seconds of a step in ops
  std::vector<double> worker_bubble;                  // [worker of a group]: idle share; the mean is bubble_ratio
  bool fits = true;                                   // whether peak_memory_bytes fits in the problem's memory
  double busy_seconds = 0;                            // mean time in ops over workers, including recomputation
  std::array<double, kIdleCauses> idle_seconds = {};  // mean over workers, by cause
  std::optional<EquationOne> paper;                   // result of equation 1; empty without a closed form
};

/// Schedule, partition and costs of a candidate.
struct PlannedSchedule {
  std::shared_ptr<const Schedule> schedule;
  std::vector<StageLayers> partition;
  StageModel model;
  const PaperModel* paper = nullptr;  // null: no closed form, or not a generated schedule
};

/// Predicts candidates of a problem; caches schedules.
class Predictor {
 public:
  explicit Predictor(PlanProblem problem) : problem_(std::move(problem)) {}

  [[nodiscard]] const PlanProblem& problem() const { return problem_; }
  /// Returns the same problem with other memory per worker; shares the cached schedules.
  [[nodiscard]] Predictor with_memory(double bytes) const {
    Predictor other(*this);
    other.problem_.memory_bytes = bytes;
    return other;
  }
  /// Replaces the problem's machine; keeps the cached schedules.
  void set_machine(const MachineProfile& machine) { problem_.machine = machine; }
  /// Builds schedule, partition and costs. Throws ConfigError if the schedule does not accept the shape, or the model
  /// has fewer layers than stages.
  [[nodiscard]] PlannedSchedule prepare(const Candidate& candidate);
  [[nodiscard]] Prediction predict(const Candidate& candidate) { return predict(prepare(candidate), candidate); }
  [[nodiscard]] Prediction predict(const PlannedSchedule& planned, const Candidate& candidate) const;
  /// Predicts as predict() does, but returns early, with an empty result, if a step takes `seconds` or longer.
  [[nodiscard]] std::optional<Prediction> predict_below(double seconds, const PlannedSchedule& planned,
                                                        const Candidate& candidate) const;
  /// Returns the simulated step time. With `on_own_cores`, every worker has its own cores and nothing contends.
  [[nodiscard]] double step_seconds(const PlannedSchedule& planned, const Candidate& candidate,
                                    bool on_own_cores = false) const;

 private:
  [[nodiscard]] std::shared_ptr<const Schedule> schedule_of(const Candidate& candidate);

  PlanProblem problem_;
  std::unordered_map<std::string, std::shared_ptr<const Schedule>> schedules_;  // keyed by shape
  std::int64_t kept_ops_ = 0;
};

/// Returns a lower bound of the step time, without generating the schedule. It is the total work divided by the number
/// of workers. If a synchronous schedule does not divide micro-batches, the bound is at least the time of one
/// micro-batch through all stages and back.
[[nodiscard]] double least_step_seconds(const PlanProblem& problem, const Candidate& candidate);

}  // namespace chimera
