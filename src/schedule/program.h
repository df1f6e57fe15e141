#pragma once
// A program is what the workers do: a schedule with its messages, all-reduces and updates of weights spelled out.
// The executor runs it and `check` proves that it cannot get stuck.

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "schedule/dependencies.h"
#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

enum class InstructionKind : std::uint8_t {
  Compute,         ///< run `op`; where it is paired, side by side with the Compute right behind it
  Recompute,       ///< run again, from its kept input, the forward whose backward (B or I) is `op`
  PostReceive,     ///< offer room for the tensor that `op` makes on worker `peer`; does not block
  WaitReceive,     ///< block until that tensor has arrived
  StartSend,       ///< hand the tensor that `op` made here to worker `peer`; does not block
  WaitSend,        ///< block until that tensor has left, so that it may be freed
  StartAllReduce,  ///< begin summing the gradients of `group` over the workers that hold it; does not block. Of a tied
                   ///< matrix the gradients of its two uses are added first
  WaitAllReduce,   ///< block until that sum is here
  ReduceScalars,   ///< block in the sum over all workers of squared gradient norms (each stage's from one owner) and
                   ///< losses of `step`
  OptimizerStep,   ///< update the weights of every stage held here
  UpdateWeights,   ///< make weight version `op.weight_version` of `op.stage` from its newest and its gradients, by its
                   ///< own norm, and begin its gradients anew; `op` is the last weight gradient that enters
  DropWeights,     ///< forget weight version `op.weight_version` of `op.stage`; the newest only when it is replaced
};

/// One step of a worker. A tensor is named by the op that makes it: F makes the input of the next stage's F, B and I
/// make the gradient that the previous stage's backward needs.
struct Instruction {
  InstructionKind kind = InstructionKind::Compute;
  Op op = {};                   // Compute, Recompute, updates: see there; transfers: what makes the tensor
  WorkerId peer = {};           // transfers: the other end
  ParameterGroupId group = {};  // all-reduces: what is summed
  std::int32_t step = 0;        // ReduceScalars: which of the program's, from 0
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Program {
  std::int64_t stages = 0;
  std::int64_t micro_batches = 0;
  Placement placement;
  std::vector<std::vector<Instruction>> workers;  // workers[w]: instructions of worker w, in order
  bool tied = false;                              // stage 0 and the last share a matrix; its owners sum its gradients
  std::int64_t steps = 1;                         // that the micro-batches form, an equal number each
};

/// How the messages between two workers are matched.
enum class ChannelDiscipline : std::uint8_t {
  PerDirection,  ///< each directed pair is a queue: the k-th send meets the k-th receive (Gloo)
  SerialPair,    ///< both directions of a pair share one queue: each end issues transfers in one common order (an NCCL
                 ///< communicator)
};
[[nodiscard]] const char* to_text(ChannelDiscipline discipline);

/// `wait for 0F1 from worker 0`: one instruction in words.
[[nodiscard]] std::string to_text(const Instruction& instruction);

[[nodiscard]] constexpr bool is_all_reduce(InstructionKind kind) {
  return kind == InstructionKind::StartAllReduce || kind == InstructionKind::WaitAllReduce;
}

/// Whether Instruction::op means anything.
[[nodiscard]] constexpr bool names_an_op(InstructionKind kind) {
  return !is_all_reduce(kind) && kind != InstructionKind::ReduceScalars && kind != InstructionKind::OptimizerStep;
}

/// Whether the op and that of the next instruction run side by side.
[[nodiscard]] constexpr bool begins_pair(const Instruction& instruction) {
  return instruction.kind == InstructionKind::Compute && instruction.op.paired;
}

[[nodiscard]] constexpr bool is_transfer(InstructionKind kind) {
  return kind >= InstructionKind::PostReceive && kind <= InstructionKind::WaitSend;
}

}  // namespace chimera
