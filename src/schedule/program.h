#pragma once
// A program is each worker's instruction list: a schedule with explicit messages, all-reduces and updates. lower()
// (passes/lower.h) makes it, check() (check/check_program.h) proves that it cannot deadlock, and every rank's executor
// (runtime/executor.h) runs its worker's list front to back.

#include <cstdint>
#include <string>
#include <vector>

#include "core/ids.h"
#include "schedule/dependencies.h"
#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

enum class InstructionKind : std::uint8_t {
  Compute,      ///< Run `op`; if it is paired, together with the Compute right after it
  Recompute,    ///< Rerun, from its saved input, the forward whose backward (B or I) is `op`
  PostReceive,  ///< Offer a buffer for the tensor that `op` makes on worker `peer`; does not block
  WaitReceive,  ///< Block until that tensor has arrived
  StartSend,    ///< Start to send the tensor that `op` made here to worker `peer`; does not block
  WaitSend,     ///< Block until that tensor is sent and may be freed
  /// Start the sum of `group`'s gradients over its workers, first of both uses if it is a tied matrix; does not block.
  StartAllReduce,
  WaitAllReduce,  ///< Block until that sum is complete
  /// Block until squared gradient norms (each stage's from one owner) and losses of `step` are summed over all workers.
  ReduceScalars,
  OptimizerStep,  ///< Update the weights of every stage on this worker
  /// Make weight version `op.weight_version` of `op.stage` from the newest version and the gradients, clipped by this
  /// stage's norm, and zero the gradients. `op` is the last weight gradient of the update.
  UpdateWeights,
  /// Free weight version `op.weight_version` of `op.stage`; the newest version only right before its replacement.
  DropWeights,
  Offload,  ///< Start to move the activations of forward `op` to host memory; the device waits for the previous Offload
  Load,     ///< Start to move the activations of backward `op` (B or I) back; the device waits for their Offload
};

/// An instruction of a worker. A tensor is named by the op that makes it.
struct Instruction {
  InstructionKind kind = InstructionKind::Compute;
  Op op = {};                   // transfers: the op that makes the tensor
  WorkerId peer = {};           // Transfers
  ParameterGroupId group = {};  // All-reduces
  std::int32_t step = 0;        // ReduceScalars: step of the program, from 0
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

struct Program {
  std::int64_t stages = 0;
  std::int64_t micro_batches = 0;
  Placement placement;
  std::vector<std::vector<Instruction>> workers;
  bool tied = false;                // Stage 0 and the last share a matrix
  std::int64_t steps = 1;           // Equal in number of micro-batches
  std::int64_t slices = 1;          // k: slices of a micro-batch
  std::int64_t most_on_device = 0;  // Micro-batches of offloaded stages not in or on the way to host memory; 0: any
};

/// How messages between two workers are matched.
enum class ChannelDiscipline : std::uint8_t {
  PerDirection,  ///< Each directed pair is a queue: the k-th send matches the k-th receive (Gloo)
  /// Both directions of a pair share one queue: both ends issue their transfers in the same order (an NCCL
  /// communicator)
  SerialPair,
};
[[nodiscard]] const char* to_text(ChannelDiscipline discipline);

/// Returns, for example, `wait for 0F1 from worker 0`.
[[nodiscard]] std::string to_text(const Instruction& instruction, std::int64_t slices = 1);

[[nodiscard]] constexpr bool is_all_reduce(InstructionKind kind) {
  return kind == InstructionKind::StartAllReduce || kind == InstructionKind::WaitAllReduce;
}

[[nodiscard]] constexpr bool names_an_op(InstructionKind kind) {
  return !is_all_reduce(kind) && kind != InstructionKind::ReduceScalars && kind != InstructionKind::OptimizerStep;
}

[[nodiscard]] constexpr bool begins_pair(const Instruction& instruction) {
  return instruction.kind == InstructionKind::Compute && instruction.op.paired;
}

[[nodiscard]] constexpr bool is_transfer(InstructionKind kind) {
  return kind >= InstructionKind::PostReceive && kind <= InstructionKind::WaitSend;
}

}  // namespace chimera
