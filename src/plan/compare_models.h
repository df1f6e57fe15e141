#pragma once
// Why equation 1 and the simulator say different times.

#include <string>
#include <vector>

#include "plan/predict.h"

namespace chimera {

/// A part of the difference.
struct DifferenceCause {
  std::string name;    // `messages`, `sums of gradients`, ...
  double seconds = 0;  // of the simulator's time beyond equation 1's
};

struct ModelComparison {
  double paper_seconds = 0;
  double simulated_seconds = 0;
  /// Together the difference. Effects are removed from both models one after the other (cores and links that workers
  /// share, updates and overheads, messages, sums of gradients, unequal stages), each worth what the difference
  /// changes; what is left is `order of ops`: the simulated order beside the closed form. None below 0.5 % of the
  /// simulated time.
  std::vector<DifferenceCause> causes;
};

/// Compares the two for a candidate whose prediction has equation 1.
[[nodiscard]] ModelComparison compare_models(Predictor& predictor, const Candidate& candidate);

/// What else a plan could gain, by simulating it again.
struct PossibleGains {
  double free_network_seconds = 0;           // step time if messages and sums took none
  double without_recomputation_seconds = 0;  // and if memory asked for no recomputation
};
[[nodiscard]] PossibleGains possible_gains(Predictor& predictor, const Candidate& candidate);

}  // namespace chimera
