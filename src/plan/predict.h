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

// Predicts step time and memory by the simulator and by equation 1.

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
  std::optional<EquationOne> paper;                   // empty without a closed form
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
  [[nodiscard]] double step_seconds(const PlannedSchedule& planned, const Candidate& candidate) const;
  /// Returns the step time without contention, every worker on its own cores.
  [[nodiscard]] double step_seconds_on_own_cores(const PlannedSchedule& planned) const;

 private:
  [[nodiscard]] std::shared_ptr<const Schedule> schedule_of(const Candidate& candidate);

  PlanProblem problem_;
  std::unordered_map<std::string, std::shared_ptr<const Schedule>> schedules_;  // keyed by shape
  std::int64_t kept_ops_ = 0;
};

/// Returns a lower bound: total work over workers, or the pass of a whole micro-batch through all stages and back.
/// Cheap: generates no schedule.
[[nodiscard]] double least_step_seconds(const PlanProblem& problem, const Candidate& candidate);

enum class StepPart : std::uint8_t {
  Compute,  ///< ops of the mean worker, without recomputation
  Recomputation,
  Bubble,      ///< idle time without messages, all-reduces and updates
  TensorSums,  ///< all-reduces within ops between workers that share a stage's layers
  Messages,
  Sums,     ///< exposed all-reduces of gradients
  Updates,  ///< weight updates and overheads per step
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

/// Seconds by part; their total is the simulated step time.
struct StepParts {
  std::array<double, kStepParts> seconds = {};
  [[nodiscard]] double of(StepPart part) const { return seconds[static_cast<std::size_t>(part)]; }
};

/// Splits the step time into its parts. Removes all-reduces, messages, updates and tensor-parallel sums from the
/// simulation in this order; each part is the reduction of the step time. A part that ops hide is 0, or negative if its
/// delays improved the order of ops. The rest is compute and bubbles.
[[nodiscard]] StepParts step_parts(Predictor& predictor, const Candidate& candidate);

/// Set the time of these costs to 0.
void remove_messages(StageModel& model);
void remove_sums(StageModel& model);
void remove_updates(StageModel& model);
void remove_tensor_sums(StageModel& model);

}  // namespace chimera
