#pragma once

// Runs the program of one worker: a list of instructions (schedule/program.h) that lower() has made from the worker's
// ops in a schedule (passes/lower.h). The executor does not branch on the kind of schedule; whatever a schedule needs
// is an instruction.
//
//   PostReceive, WaitReceive, StartSend, WaitSend     Messages         tensors between ops and workers
//   Compute, Recompute                                OpRunner         forwards and backwards of the stages
//   Offload, Load                                     Activations      what forwards keep for backwards
//   StartAllReduce, WaitAllReduce                     GradientSums     gradients over the replicas of a stage
//   ReduceScalars                                     StepReduction    losses and gradient norms over all workers
//   OptimizerStep, UpdateWeights, DropWeights         WeightVersions   weights; StepHooks (step_hooks.h) updates them
//
// The class in the middle executes the instructions, and owns their state. The executor dispatches instructions, checks
// for values that are not finite, and names the current instruction for error messages. StepDriver
// (engine/step_driver.h) runs one program per step.

#include <map>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/stage.h"
#include "runtime/activations.h"
#include "runtime/gradient_sums.h"
#include "runtime/messages.h"
#include "runtime/op_runner.h"
#include "runtime/recordings.h"
#include "runtime/step_hooks.h"
#include "runtime/step_reduction.h"
#include "runtime/weight_versions.h"
#include "runtime/worker_context.h"
#include "schedule/program.h"
#include "transport/stream.h"
#include "transport/transport.h"

namespace chimera {

/// Executor of one worker, for the worker's own thread. Borrows stages, transport and hooks. A long program may be run
/// in pieces, one call of run() per piece: pending operations and weight versions remain for the next piece.
class Executor {
 public:
  /// `message` has the sizes and type of the hidden states of a micro-batch: [samples, tokens, hidden size]. `tied` is
  /// the matrix that the first and the last stage of a tied model share, if this worker holds it; else null. `shape`
  /// (worker_context.h) has what the program's instructions leave out: ranks, parameter groups, slices.
  Executor(WorkerId worker, std::map<StageId, Stage*> stages, Transport& transport, TensorSpec message,
           ProgramShape shape, ParameterGroup* tied = nullptr);

  /// Runs the instructions once. If they have an OptimizerStep, zeros the gradients first. Programs without backwards
  /// (validation) use the newest weights. Throws the errors of stages, transport and hooks; current() then names the
  /// instruction. If a loss or the gradient norm is not finite and UpdateHooks::skip_non_finite is empty, ReduceScalars
  /// throws before the optimizer step: Error on the worker that made it, PeerLostError on the others. Asynchronous
  /// programs have changed some weights by then.
  StepResult run(const std::vector<Instruction>& program, const StepHooks& hooks);

  /// Runs the ops, sums and norms of a synchronous program once, with zeros as received messages and without an update,
  /// and zeros the gradients if there are backwards. Collective: returns once all ranks have launched their ops.
  /// `hooks` are as for run(), but only load, on_instruction, peak_memory and before_wait are called. Call it on a GPU
  /// before the first program with receives.
  void warm_up(const std::vector<Instruction>& program, StepHooks hooks);
  /// Records the kernels of each op as a device graph, such as a CUDA graph; run() then launches the graphs
  /// (recordings.h). For synchronous training programs. Call it after warm_up().
  void record_ops(const std::vector<Instruction>& program, const LoadMicroBatch& load, const CaptureGraph& capture);

  /// Abandons the step after run() threw, so that it can be repeated. Not for programs that update stages separately.
  void drop();

  /// Makes the transport connect the ranks of each gradient sum (Transport::connect_sums()). Call it before the first
  /// step over new connections; collective. May overwrite the gradients.
  void connect_sums() const { sums_.connect(); }

  /// Returns the current instruction as text, such as `1B3`; empty between programs. After an error of run(), this is
  /// the instruction that failed.
  [[nodiscard]] std::string current() const;
  /// Return the times of training steps since the last forget_times() (tracer.h).
  [[nodiscard]] const OpTimes& op_times() const { return ops_.times(); }
  [[nodiscard]] const WaitTimes& wait_times() const { return waits_; }
  /// Returns the times of messages since the last call, by sender.
  [[nodiscard]] TransitTimes take_transit_times() { return messages_.take_transit_times(); }
  void forget_times() {
    ops_.times().forget();
    waiting_.drop();
    waits_ = {};
  }

 private:
  void begin(const std::vector<Instruction>& program);
  void run_part(std::span<const Instruction> part, const StepHooks& hooks);
  void repeat_part(std::span<const Instruction> part, const StepHooks& hooks);
  void note(const Instruction& instruction, const StepHooks& hooks);
  void execute(const Instruction& instruction, const StepHooks& hooks);
  void reduce_scalars(std::int64_t step, const StepHooks& hooks);
  void handle_non_finite(const NonFiniteResult& source, std::int64_t step, const StepHooks& hooks);
  void update_weights(const Op& op, const StepHooks& hooks);
  void use_weights(const Op& op);
  [[nodiscard]] WeightVersions& versions_of(const Op& op);

  WorkerContext worker_;
  Messages messages_;
  Activations activations_;
  GradientSums sums_;
  OpRunner ops_;
  StepReduction reduction_;
  RecordedSteps recorded_;
  std::unordered_map<StageId, WeightVersions> versions_;  // Of the stages that are updated separately
  bool trains_ = false;                                   // The current program updates weights
  std::optional<Instruction> current_;
  StepResult result_;
  at::Device device_ = at::kCPU;
  bool is_recording_ = false;  // A device graph of the step is being recorded
  WaitTimes waits_;
  TimedWork waiting_;
};

}  // namespace chimera
