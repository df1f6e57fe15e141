#pragma once

// Explains a candidate's predicted step time by removing costs from its model in turn. Each cost is charged with the
// change that its removal causes: of the difference between equation 1 of the paper and the simulator (compare_models),
// or of the simulated time (step_parts). `chimera plan` prints the results below its table and with --explain.

#include <array>
#include <string>
#include <vector>

#include "core/choices.h"
#include "plan/predict.h"

namespace chimera {

struct DifferenceCause {
  std::string name;    // `messages`, `sums of gradients`, ...
  double seconds = 0;  // simulated time minus time of equation 1 due to this cause
};

struct ModelComparison {
  double paper_seconds = 0;
  double simulated_seconds = 0;
  /// Together the difference. Each effect is removed from both models in turn: shared cores and links, updates and
  /// overheads, messages, all-reduces, unequal stages. The rest is `order of ops`: simulated order versus closed form.
  /// Causes below 0.5 % of the simulated time are omitted.
  std::vector<DifferenceCause> causes;
};

/// Compares both models. Requires a candidate whose prediction has equation 1.
[[nodiscard]] ModelComparison compare_models(Predictor& predictor, const Candidate& candidate);

/// Simulated step times without some costs.
struct PossibleGains {
  double free_network_seconds = 0;           // messages and all-reduces take no time
  double without_recomputation_seconds = 0;  // no stage recomputes
};
[[nodiscard]] PossibleGains possible_gains(Predictor& predictor, const Candidate& candidate);

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

}  // namespace chimera
