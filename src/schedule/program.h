#pragma once
// A program is a list of instructions for each worker of a pipeline: the ops of a schedule, with explicit messages,
// all-reduces and updates. lower() (passes/lower.h) makes a program, and check() (check/check_program.h) proves that it
// cannot deadlock. The executor of every rank (runtime/executor.h) runs its worker's list in order.

#include "schedule/dependencies.h"
#include "schedule/op.h"
#include "schedule/schedule.h"

namespace chimera {

enum class InstructionKind : std::uint8_t {
  Compute,      ///< Run `op`; if it is paired, together with the Compute right after it
  Recompute,    ///< Run the forward that belongs to the backward `op` (B or I) again, from its saved input
  PostReceive,  ///< Offer a buffer for the tensor that `op` makes on worker `peer`; does not block
  WaitReceive,  ///< Block until that tensor has arrived
  StartSend,    ///< Start to send the tensor that `op` made here to worker `peer`; does not block
  WaitSend,     ///< Block until that tensor is sent and may be freed
  /// Start the all-reduce of the gradients of parameter group `group` over all workers that hold it; does not block.
  /// Group s has the parameters of stage s. With S stages, group S is a tied matrix (embedding and output matrix in
  /// one): first add the gradients of both uses on this worker.
  StartAllReduce,
  WaitAllReduce,  ///< Block until that all-reduce is complete
  /// Block until the losses and squared gradient norms of `step` are summed over all workers. Only one worker
  /// contributes the norm of each stage.
  ReduceScalars,
  OptimizerStep,  ///< Update the weights of every stage on this worker
  /// In an asynchronous schedule: make weight version `op.weight_version` of `op.stage` from the newest version and the
  /// gradients, clipped by the norm of this stage's gradients, and zero the gradients. `op` is the last weight gradient
  /// of the update.
  UpdateWeights,
  /// Free weight version `op.weight_version` of `op.stage`. The newest version is freed only right before the update
  /// that replaces it.
  DropWeights,
  Offload,  ///< Start to copy the activations of forward `op` to host memory; the device waits for the previous Offload
  Load,     ///< Start to copy the activations for backward `op` (B or I) back; the device waits for their Offload
};

/// An instruction of a worker. Each kind uses some of the fields.
struct Instruction {
  InstructionKind kind = InstructionKind::Compute;
  Op op = {};                   // For sends and receives: the op whose result is the tensor
  WorkerId peer = {};           // The other worker of a send or receive
  ParameterGroupId group = {};  // For all-reduces: a stage, or the tied matrix
  std::int32_t step = 0;        // ReduceScalars: step of the program, from 0
  friend bool operator==(const Instruction&, const Instruction&) = default;
};

/// The instructions of all workers of one pipeline, for one or several steps.
struct Program {
  std::int64_t stages = 0;
  std::int64_t micro_batches = 0;  // Of all steps
  Placement placement;
  std::vector<std::vector<Instruction>> workers;  // [worker]: instructions in order
  bool tied = false;                              // Whether the first and the last stage share a matrix
  std::int64_t steps = 1;                         // All with equally many micro-batches
  std::int64_t slices = 1;                        // k: slices of a micro-batch
  /// With offloading: maximum number of micro-batches whose activations of offloaded stages are on a worker's device,
  /// without those that an Offload has started to move; 0: no limit
  std::int64_t most_on_device = 0;
};

/// How a transport matches sends and receives of two workers: by their order in one of these queues, not by tags.
enum class ChannelDiscipline : std::uint8_t {
  PerDirection,  ///< One queue per direction: the k-th send of one worker matches the k-th receive of the other (Gloo)
  /// One queue for both directions, as in an NCCL communicator: both workers must start their sends and receives to
  /// each other in the same order
  SerialPair,
};
[[nodiscard]] const char* to_text(ChannelDiscipline discipline);

/// Returns, for example, `wait for 0F1 from worker 0`.
[[nodiscard]] std::string to_text(const Instruction& instruction, std::int64_t slices = 1);

[[nodiscard]] constexpr bool is_all_reduce(InstructionKind kind) {
  return kind == InstructionKind::StartAllReduce || kind == InstructionKind::WaitAllReduce;
}

/// Returns whether instructions of this kind use the field `op`.
[[nodiscard]] constexpr bool names_an_op(InstructionKind kind) {
  return !is_all_reduce(kind) && kind != InstructionKind::ReduceScalars && kind != InstructionKind::OptimizerStep;
}

/// Returns whether this Compute and the next one are a pair.
[[nodiscard]] constexpr bool begins_pair(const Instruction& instruction) {
  return instruction.kind == InstructionKind::Compute && instruction.op.paired;
}

/// Returns whether the kind is part of a send or a receive.
[[nodiscard]] constexpr bool is_transfer(InstructionKind kind) {
  return kind >= InstructionKind::PostReceive && kind <= InstructionKind::WaitSend;
}

}  // namespace chimera
