#pragma once

// Chooses copies of stages that balance the work after workers were lost. Without copies, only the holders of the lost
// worker's stages run its ops, while other workers idle. A worker with memory to spare can get the state of such a
// stage, and then run some of its micro-batches. Its own work moves on to the other holders of its stages.

#include <cstdint>
#include <vector>

#include "generate/detours.h"

namespace chimera {

struct BalancedDetours {
  Detours detours;
  std::vector<ExtraCopy> copies;  // copies that the schedule uses, in the order of their choice
};

/// Searches for the copies that make the fastest schedule: a beam search over placements by their bound
/// (Routes::bound), then make_detours() for the best ones. Uses at most `most` copies, and only those that help. `room`
/// [worker]: number of further stages that its memory can hold; empty: no limit. `task.extra_copies` must be empty.
/// Deterministic. Throws as make_detours() does.
[[nodiscard]] BalancedDetours balance_detours(DetourTask task, std::int64_t most,
                                              const std::vector<std::int64_t>& room = {});

}  // namespace chimera
