#pragma once
// Where the time of a planned step goes.

#include <array>
#include <string>
#include <vector>

#include "core/names.h"
#include "plan/predict.h"

namespace chimera {

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
