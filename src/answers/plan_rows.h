#pragma once
// The tables of `chimera plan`.

#include <string>
#include <vector>

#include "answers/plan_answer.h"

namespace chimera {

/// What the candidate recomputes, as --recompute takes it.
[[nodiscard]] std::string recomputed(const Candidate& candidate);

/// One row a candidate, numbered from 1, under a heading. At least one candidate.
[[nodiscard]] std::string plan_rows(const std::vector<ReportedCandidate>& candidates);

/// The parts of the steps of those that have them, side by side: seconds and percent of the step. Empty where none has.
[[nodiscard]] std::string explained_rows(const std::vector<ReportedCandidate>& candidates);

}  // namespace chimera
