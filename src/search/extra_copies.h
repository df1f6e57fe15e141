#pragma once

// Chooses copies of stages that balance the work after workers were lost (flags --without and --extra-copies). In a
// bidirectional schedule, several workers hold each stage. Without further copies, only the other holders of a lost
// worker's stages run its ops, while the rest idle. A worker with memory to spare can get the weights of such a stage,
// and then run some of its micro-batches. Part of this worker's own work moves to the other holders of its stages.
// make_detours() (generate/detours.h) makes the schedule for given copies.

#include <cstdint>
#include <vector>

#include "generate/detours.h"

namespace chimera {

/// The fastest schedule found, and its copies.
struct BalancedDetours {
  Detours detours;
  std::vector<ExtraCopy> copies;  // copies that the schedule uses, in the order of their choice
};

/// Searches for the copies that make the fastest schedule: a beam search over placements by a lower bound of their
/// makespan (Routes::bound in generate/routes.h), then make_detours() for the best ones. Uses at most `most` copies,
/// and only those that help. `room` [worker]: number of further stages that its memory can hold; empty: no limit.
/// `task.extra_copies` must be empty. Deterministic. Throws as make_detours() does.
[[nodiscard]] BalancedDetours balance_detours(DetourTask task, std::int64_t most,
                                              const std::vector<std::int64_t>& room = {});

}  // namespace chimera
