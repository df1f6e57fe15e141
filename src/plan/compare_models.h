#pragma once

#include <string>
#include <vector>

#include "plan/predict.h"

// Explains why equation 1 of the paper and the simulator predict different step times for one candidate. Each effect
// that only one of the models knows is removed from both in turn, and the change of the difference is attributed to
// it. `chimera plan` prints the result below its table.

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

}  // namespace chimera
