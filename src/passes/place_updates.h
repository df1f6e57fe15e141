#pragma once
// Where the workers of an asynchronous schedule update their weights, and forget old ones.

#include <cstddef>
#include <vector>

#include "schedule/program.h"
#include "schedule/schedule.h"

namespace chimera {

/// An instruction that stands right after the op at position `after` of its worker's list.
struct PlacedInstruction {
  std::size_t after = 0;
  Instruction instruction;
};

/// For each worker, in order: an UpdateWeights after the last weight gradient of every update of a stage, a DropWeights
/// of each version after its last use (of the newest, where nothing uses it any more, before the update that replaces
/// it), and where `sums` is set a start and a wait of the stage's all-reduce before each update. A last group of
/// micro-batches that is not complete is an update after the worker's last op. Nothing for a synchronous schedule.
/// Requires a schedule that check() accepts. Time linear in the ops, but for a logarithm of the versions.
[[nodiscard]] std::vector<std::vector<PlacedInstruction>> place_updates(const Schedule& schedule, bool sums);

}  // namespace chimera
