#pragma once
// What workers hold at most, and which stages have to recompute so that it fits.

#include <optional>
#include <set>
#include <vector>

#include "plan/stage_model.h"
#include "schedule/schedule.h"
#include "schedule/timeline.h"

namespace chimera {

/// [worker]: the most bytes that it holds by the order of its ops alone, without a timeline: weights (all versions),
/// gradients, optimizer state, activations, an op's working set, and every message that its channels may have under way
/// at once. Not below worker_peaks(), but for messages that wait for their ops while later ones of their channel are
/// made. `recompute` replaces the model's.
[[nodiscard]] std::vector<double> peaks_by_order(const Schedule& schedule, const StageModel& model,
                                                 const std::set<StageId>& recompute);

/// [worker]: the most bytes that it holds in that timeline, an op's working set beside what explain() counts.
[[nodiscard]] std::vector<double> worker_peaks(const Schedule& schedule, const StageModel& model,
                                               const Timeline& timeline, const Explanation& explanation);

/// Stages whose recomputation makes peaks_by_order() fit: while a worker holds too much, the one with the most
/// activations in flight on the worker that lacks most. Empty where nothing has to be recomputed; none where even
/// recomputing all does not help.
[[nodiscard]] std::optional<std::set<StageId>> stages_to_recompute(const Schedule& schedule, const StageModel& model,
                                                                   double memory_bytes);

}  // namespace chimera
