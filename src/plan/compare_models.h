#pragma once

// Explains the predicted step time of a candidate. There are two predictions: by the simulator, and by equation 1 of
// the Chimera paper (equation_one.h). The functions below remove one kind of cost after the other, for example all
// messages, and predict again. The change is attributed to this cost. compare_models() explains in this way why the two
// predictions differ; step_parts() splits the simulated time. `chimera plan` prints the results below its table and
// with --explain.

#include "core/choices.h"
#include "plan/predict.h"

namespace chimera {

/// A reason why the two predictions differ.
struct DifferenceCause {
  std::string name;    // `messages`, `sums of gradients`, ...
  double seconds = 0;  // part of (simulated time - time of equation 1) that this cause explains
};

/// Result of compare_models().
struct ModelComparison {
  double paper_seconds = 0;      // step time by equation 1
  double simulated_seconds = 0;  // step time by the simulator
  /// Causes of the difference, the largest absolute value first. These costs are removed from both predictions in turn:
  /// shared cores and links, updates and overheads, messages, all-reduces, differences between stages. The rest is
  /// called `order of ops`, because equation 1 only counts the ops on one critical path. All causes add up to the
  /// difference, but those below 0.5 % of the simulated time are omitted.
  std::vector<DifferenceCause> causes;
};

/// Compares both predictions. Requires a candidate for which equation 1 has a formula (Prediction::paper is set).
[[nodiscard]] ModelComparison compare_models(Predictor& predictor, const Candidate& candidate);

/// Simulated step times without some costs.
struct PossibleGains {
  double free_network_seconds = 0;           // messages and all-reduces take no time
  double without_recomputation_seconds = 0;  // no stage recomputes
};
/// Simulates the candidate twice, each time without one kind of cost.
[[nodiscard]] PossibleGains possible_gains(Predictor& predictor, const Candidate& candidate);

/// Parts of a step time; all are means over the workers.
enum class StepPart : std::uint8_t {
  Compute,        ///< ops without recomputation
  Recomputation,  ///< forwards that run again
  Bubble,         ///< idle time that remains without messages, all-reduces and updates
  TensorSums,     ///< tensor parallelism: all-reduces within ops, between workers that share the layers of a stage
  Messages,       ///< messages that no op hides
  Sums,           ///< all-reduces of gradients that no op hides
  Updates,        ///< weight updates and overheads per step
};
template <>
inline constexpr auto kNames<StepPart> = in_order<StepPart>("compute", "recomputation", "bubble",
                                                            "tensor-parallel sums", "exposed messages", "exposed sums",
                                                            "updates and overheads");
inline constexpr std::size_t kStepParts = kNames<StepPart>.size();

/// Seconds by part; their total is the simulated step time.
struct StepParts {
  std::array<double, kStepParts> seconds = {};
  [[nodiscard]] double of(StepPart part) const { return seconds[static_cast<std::size_t>(part)]; }
};

/// Splits the simulated step time into its parts. Removes all-reduces, messages, updates and tensor-parallel
/// all-reduces from the simulation in this order; each part is the reduction of the step time. A part that ops hide is
/// 0, or negative if its delays improved the order of ops. The rest is compute and bubbles.
[[nodiscard]] StepParts step_parts(Predictor& predictor, const Candidate& candidate);

}  // namespace chimera
