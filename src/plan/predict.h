#pragma once

#include <array>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/choices.h"
#include "plan/candidate.h"
#include "plan/equation_one.h"
#include "plan/stage_model.h"
#include "schedule/timeline.h"

// A candidate's step time and memory, by both models: the simulator and the paper's equation 1.

// Where the time of a planned step goes.

namespace chimera {

struct Prediction {
  double step_seconds = 0;                            // of the simulator
  double sequences_per_second = 0;                    // mini-batch over that
  double bubble_ratio = 0;                            // idle time over all workers' time
  double peak_memory_bytes = 0;                       // of the worker that holds most
  std::vector<double> worker_bytes;                   // [worker of a group]: its peak
  bool fits = true;                                   // in the problem's memory
  double busy_seconds = 0;                            // mean over workers: in ops, recomputation included
  std::array<double, kIdleCauses> idle_seconds = {};  // mean over workers, by cause
  std::optional<EquationOne> paper;                   // equation 1, where it has a closed form
};

/// A candidate made concrete.
struct PlannedSchedule {
  std::shared_ptr<const Schedule> schedule;
  std::vector<StageLayers> partition;
  StageModel model;
};

/// Predicts candidates of one problem; keeps schedules that several of them share.
class Predictor {
 public:
  explicit Predictor(PlanProblem problem) : problem_(std::move(problem)) {}

  [[nodiscard]] const PlanProblem& problem() const { return problem_; }
  /// The same problem where workers have that memory; schedules are shared.
  [[nodiscard]] Predictor with_memory(double bytes) const {
    Predictor other(*this);
    other.problem_.memory_bytes = bytes;
    return other;
  }
  /// Schedule, partition and costs. Throws ConfigError where the shape is none of the schedule's, or the model has
  /// fewer layers than stages.
  [[nodiscard]] PlannedSchedule prepare(const Candidate& candidate);
  [[nodiscard]] Prediction predict(const Candidate& candidate) { return predict(prepare(candidate), candidate); }
  [[nodiscard]] Prediction predict(const PlannedSchedule& planned, const Candidate& candidate) const;
  /// None where a step takes `seconds` or longer: memory and causes are then not looked at.
  [[nodiscard]] std::optional<Prediction> predict_below(double seconds, const PlannedSchedule& planned,
                                                        const Candidate& candidate) const;
  /// The simulator's step time alone.
  [[nodiscard]] double step_seconds(const PlannedSchedule& planned, const Candidate& candidate) const;
  /// What it would be if every worker had cores of its own, and nothing slowed down what runs beside it (Contention).
  [[nodiscard]] double step_seconds_on_own_cores(const PlannedSchedule& planned) const;

 private:
  [[nodiscard]] std::shared_ptr<const Schedule> schedule_of(const Candidate& candidate);

  PlanProblem problem_;
  std::unordered_map<std::string, std::shared_ptr<const Schedule>> schedules_;  // by shape
  std::int64_t kept_ops_ = 0;                                                   // of these schedules
};

/// No order of the candidate's ops on its workers takes less: all work over the workers, or one micro-batch's way
/// through the stages and back. Cheap: nothing is generated.
[[nodiscard]] double least_step_seconds(const PlanProblem& problem, const Candidate& candidate);

enum class StepPart : std::uint8_t {
  Compute,        ///< ops of the mean worker, without what it runs again
  Recomputation,  ///< forwards that it runs again
  Bubble,         ///< it waits, although messages, sums and updates take no time
  TensorSums,     ///< sums within ops, of workers that share a stage's layers
  Messages,       ///< what messages add that nothing hides
  Sums,           ///< what the sums of gradients add that nothing hides
  Updates,        ///< updates of weights, and what a step takes besides
};
template <>
inline constexpr auto kNames<StepPart> = std::to_array<Named<StepPart>>({{StepPart::Compute, "compute"},
                                                                         {StepPart::Recomputation, "recomputation"},
                                                                         {StepPart::Bubble, "bubble"},
                                                                         {StepPart::TensorSums, "tensor-parallel sums"},
                                                                         {StepPart::Messages, "exposed messages"},
                                                                         {StepPart::Sums, "exposed sums"},
                                                                         {StepPart::Updates, "updates and overheads"}});
inline constexpr std::size_t kStepParts = kNames<StepPart>.size();

/// Seconds; together the simulated step.
struct StepParts {
  std::array<double, kStepParts> seconds = {};
  [[nodiscard]] double of(StepPart part) const { return seconds[static_cast<std::size_t>(part)]; }
};

/// The parts of the candidate's step. Sums, messages, updates and tensor-parallel sums are taken out of the
/// simulation one after the other, in this order; each is worth what the step gets shorter by, so a sum or message that
/// ops hide is worth nothing (and one whose delay happens to bring ops into a better order, less). What is left are ops
/// and the waits between them.
[[nodiscard]] StepParts step_parts(Predictor& predictor, const Candidate& candidate);

/// Take no time from now on.
void remove_messages(StageModel& model);
void remove_sums(StageModel& model);
void remove_updates(StageModel& model);
void remove_tensor_sums(StageModel& model);

}  // namespace chimera
