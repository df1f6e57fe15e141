#pragma once
// A candidate's stages cut anew, with the times of the machine at hand.

#include <optional>

#include "plan/predict.h"

namespace chimera {

/// The layers of each stage that balance() finds for the candidate's schedule with the machine's
/// times and the problem's memory, by an effort of some 10^5 simulated ops; none where that is the even cut, or nothing
/// fits.
[[nodiscard]] std::optional<PartitionChoice> balanced_cut(Predictor& predictor, const Candidate& candidate);

}  // namespace chimera
