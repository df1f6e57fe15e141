#include "schedule/program.h"

#include <fmt/format.h>

namespace chimera {

const char* to_text(ChannelDiscipline discipline) {
  return discipline == ChannelDiscipline::PerDirection ? "per-direction channels" : "one serial queue per pair";
}

std::string to_text(const Instruction& instruction, std::int64_t slices) {
  const auto tensor = [&](const char* verb, const char* preposition) {
    return fmt::format("{} {} {} worker {}", verb, to_text(instruction.op, slices), preposition,
                       instruction.peer.value());
  };
  switch (instruction.kind) {
    case InstructionKind::Compute: return to_text(instruction.op, slices);
    case InstructionKind::Recompute: return "recompute for " + to_text(instruction.op, slices);
    case InstructionKind::PostReceive: return tensor("post receive of", "from");
    case InstructionKind::WaitReceive: return tensor("wait for", "from");
    case InstructionKind::StartSend: return tensor("send", "to");
    case InstructionKind::WaitSend: return tensor("wait for send of", "to");
    case InstructionKind::StartAllReduce: return fmt::format("start all-reduce of stage {}", instruction.group.value());
    case InstructionKind::WaitAllReduce:
      return fmt::format("wait for all-reduce of stage {}", instruction.group.value());
    case InstructionKind::ReduceScalars: return "sum norms and losses";
    case InstructionKind::OptimizerStep: return "optimizer step";
    case InstructionKind::UpdateWeights:
      return fmt::format("update stage {} to version {}", instruction.op.stage.value(), instruction.op.weight_version);
    case InstructionKind::DropWeights:
      return fmt::format("drop version {} of stage {}", instruction.op.weight_version, instruction.op.stage.value());
    case InstructionKind::Offload: return "offload " + to_text(instruction.op, slices);
    case InstructionKind::Load: return "load for " + to_text(instruction.op, slices);
  }
  return {};
}

}  // namespace chimera
