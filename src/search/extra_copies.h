#pragma once

// Chooses copies of stages that balance the work of lost and slow workers (--without, --slow and --extra-copies). In a
// bidirectional schedule, several workers hold each stage. Without further copies, only the other holders of a lost
// worker's stages run its ops, while the rest idle. A worker with memory to spare can get the weights of such a stage,
// and then run some of its micro-batches. Part of this worker's own work moves to the other holders of its stages.
// make_detours() (generate/detours.h) makes the schedule for given copies.

#include <functional>

#include "generate/detours.h"

namespace chimera {

/// The fastest schedule found, and its copies.
struct BalancedDetours {
  Detours detours;
  std::vector<ExtraCopy> copies;  // new copies that the schedule uses, in the order of their choice
};

/// Returns whether the workers have memory for these new copies, all together. An empty function: they always have.
using CopiesFit = std::function<bool(const std::vector<ExtraCopy>& copies)>;

/// Searches for the copies that make the fastest schedule: a beam search over placements by a lower bound of their
/// makespan (Routes::bound in generate/routes.h), then make_detours() for the best ones. Adds at most `most` copies to
/// `task.extra_copies`, and only those that fit and that help: the schedule is faster or, if it is equally fast, fewer
/// stages are on only one worker. Deterministic if `fits` is. Throws ConfigError as make_detours() does, for example if
/// all holders of a stage are lost.
[[nodiscard]] BalancedDetours balance_detours(DetourTask task, std::int64_t most, const CopiesFit& fits = {});

}  // namespace chimera
