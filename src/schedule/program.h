#pragma once
// A program is what the workers do: a schedule with its messages, all-reduces and the optimizer step spelled out.
// The executor runs it and `check` proves that it cannot get stuck.

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

enum class InstructionKind : std::uint8_t {
  Compute,         ///< run `op`
  Recompute,       ///< run again, from its kept input, the forward whose backward (B or I) is `op`
  PostReceive,     ///< offer room for the tensor that `op` makes on worker `peer`; does not block
  WaitReceive,     ///< block until that tensor has arrived
  StartSend,       ///< hand the tensor that `op` made here to worker `peer`; does not block
  WaitSend,        ///< block until that tensor has left, so that it may be freed
  StartAllReduce,  ///< begin summing the gradients of `op.stage` over the workers that hold it; does not block. Stage
                   ///< S, one above the last, is the tied matrix, the gradients of whose two uses are added first
  WaitAllReduce,   ///< block until that sum is here
  ReduceScalars,   ///< block in the sum over all workers of squared gradient norms (each stage's from one owner) and
                   ///< losses
  OptimizerStep,   ///< update the weights of every stage held here
};

/// One step of a worker. A tensor is named by the op that makes it: F makes the input of the next stage's F, B and I
/// make the gradient that the previous stage's backward needs.
struct Instruction {
  InstructionKind kind = InstructionKind::Compute;
  Op op;          // Compute, Recompute: see there; transfers: what makes the tensor; all-reduces: only its stage counts
  WorkerId peer;  // transfers: the other end
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Program {
  std::int64_t stages = 0;
  std::int64_t micro_batches = 0;
  Placement placement;
  std::vector<std::vector<Instruction>> workers;  // workers[w]: instructions of worker w, in order
  bool tied = false;                              // stage 0 and the last share a matrix; its owners sum its gradients
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

[[nodiscard]] constexpr bool is_transfer(InstructionKind kind) {
  return kind >= InstructionKind::PostReceive && kind <= InstructionKind::WaitSend;
}

}  // namespace chimera
