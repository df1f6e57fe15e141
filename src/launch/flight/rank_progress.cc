#include "launch/flight/rank_progress.h"

#include <fmt/format.h>

namespace chimera {

std::string to_text(const RankProgress& progress) {
  switch (progress.phase) {
    case RankProgress::Phase::StartUp: return "start-up";
    case RankProgress::Phase::Joining: return "joining the other ranks";
    case RankProgress::Phase::Steps: return fmt::format("{} in step {}", to_text(progress.instruction), progress.step);
    case RankProgress::Phase::Ending: return "its end";
  }
  return {};
}

bool waits_for_others(const RankProgress& progress) {
  if (progress.phase != RankProgress::Phase::Steps) return progress.phase == RankProgress::Phase::Joining;
  switch (progress.instruction.kind) {
    case InstructionKind::WaitReceive:
    case InstructionKind::WaitSend:
    case InstructionKind::WaitAllReduce:
    case InstructionKind::ReduceScalars: return true;
    default: return false;
  }
}

}  // namespace chimera
