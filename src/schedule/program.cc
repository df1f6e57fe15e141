#include "schedule/program.h"

#include <fmt/format.h>

#include <array>

namespace chimera {

const char* to_text(ChannelDiscipline discipline) {
  return discipline == ChannelDiscipline::PerDirection ? "per-direction channels" : "one serial queue per pair";
}

std::string to_text(const Instruction& instruction, std::int64_t slices) {
  constexpr std::array kTexts = {"{op}",
                                 "recompute for {op}",
                                 "post receive of {op} from worker {peer}",
                                 "wait for {op} from worker {peer}",
                                 "send {op} to worker {peer}",
                                 "wait for send of {op} to worker {peer}",
                                 "start all-reduce of stage {group}",
                                 "wait for all-reduce of stage {group}",
                                 "sum norms and losses",
                                 "optimizer step",
                                 "update stage {stage} to version {version}",
                                 "drop version {version} of stage {stage}",
                                 "offload {op}",
                                 "load for {op}"};  // [InstructionKind]
  const Op& op = instruction.op;
  return fmt::format(fmt::runtime(kTexts[static_cast<std::size_t>(instruction.kind)]),
                     fmt::arg("op", to_text(op, slices)), fmt::arg("peer", instruction.peer.value()),
                     fmt::arg("group", instruction.group.value()), fmt::arg("stage", op.stage.value()),
                     fmt::arg("version", op.weight_version));
}

}  // namespace chimera
