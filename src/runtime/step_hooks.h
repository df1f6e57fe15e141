#pragma once

// The interface between a training loop and the executor: StepHooks are the functions that the loop passes in for one
// step, StepResult is what the step returns. Samples, updates and observation all reach the executor through these
// functions, so it depends on no data, optimizer or trainer. It calls them on the worker's own thread.

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/stage.h"
#include "runtime/tracer.h"
#include "schedule/program.h"
#include "transport/device_graph.h"

namespace chimera {

/// Loads the tensors of a micro-batch that `stage` reads: tokens (first stage), targets (last stage), masks if used.
/// In a program of several steps, micro-batch numbers continue from step to step.
using LoadMicroBatch = std::function<MicroBatch(StageId stage, MicroBatchId micro_batch)>;

/// Losses (scalar tensors) of the micro-batches whose last stage runs here. They are scaled (Stage::forward()) so that
/// all losses of a step add up to its mean loss, times the number of updates of a stage in the step.
using StepLosses = std::unordered_map<MicroBatchId, at::Tensor>;

/// How weights change. Programs of asynchronous schedules update each stage separately; they support neither
/// skip_non_finite nor is_left_out.
struct UpdateHooks {
  /// Updates the weights, given the gradient norm over all stages. Not called by programs without backwards.
  std::function<void(double gradient_norm)> all_stages = {};
  /// Updates the weights of a stage, given the norm of its gradients. `last` is the last micro-batch that they include.
  /// Only called by programs that update stages separately.
  std::function<void(StageId stage, MicroBatchId last, double gradient_norm)> one_stage = {};
  /// If set, a step with a non-finite loss or gradient norm changes no weights. It is then called on all workers.
  /// `what` describes the first non-finite result; `is_own` is true on the worker that computed it. May throw.
  std::function<void(const std::string& what, bool is_own)> skip_non_finite = {};
  bool is_left_out = false;  ///< The step runs, but changes no weights; for example, it led to a loss spike (--spike)
};

/// Functions and recorders that watch the step.
struct ObservationHooks {
  /// Called before each instruction.
  std::function<void(const Instruction& instruction)> on_instruction = {};
  /// Called on a GPU, if set, when all work before the optimizer step is enqueued, before the host waits for the GPU.
  std::function<void()> before_wait = {};
  /// Returns the peak memory of this worker in bytes, for StepResult::peak_memory_bytes.
  std::function<double()> peak_memory = [] { return 0.0; };
  /// Returns the bytes in use on this worker's device, by all processes. Empty on the CPU.
  std::function<double()> used_memory = {};
  /// Returns Accelerator::allocation_retries(). Empty on the CPU.
  std::function<double()> allocation_retries = {};
  /// Records instruction times in the step that it has begun; borrowed, may be null.
  Tracer* tracer = nullptr;
};

/// Repetition of device work as a recorded graph (RecordedSteps). Not with dropout or updates of separate stages.
struct RecordingHooks {
  /// If set, device work before the step's sums is recorded in the third training step, then repeated. `on_instruction`
  /// is then called once for this part, with its first instruction. Set on all workers or on none.
  CaptureGraph record = {};
  /// Loads the micro-batches of the next training step. Empty in the last step.
  LoadMicroBatch load_next = {};
};

/// Numbers by which ranks agree on checkpoints and on the end of a run (train/recover/checkpointer.h). Each rank sets
/// them to 0 or 1, and the step adds them over all ranks.
struct SaveVotes {
  double wanted = 0;     ///< Ranks that request a checkpoint
  double written = 0;    ///< Ranks that have written their part
  double failed = 0;     ///< Ranks whose save failed
  double committed = 0;  ///< 1 if rank 0 has committed
  double stop = 0;       ///< Ranks that got a stop request

  [[nodiscard]] std::vector<double> pack() const { return {wanted, written, failed, committed, stop}; }
  [[nodiscard]] static SaveVotes unpack(std::span<const double> numbers) {
    return {numbers[0], numbers[1], numbers[2], numbers[3], numbers[4]};
  }
};

/// Everything that the executor gets from the training loop for a step.
struct StepHooks {
  /// Number of the step, from 1; in a program of several steps, of the first one. Both ends of a message must agree.
  std::int64_t step = 0;
  LoadMicroBatch load;
  UpdateHooks update = {};
  ObservationHooks observation = {};
  RecordingHooks recording = {};
  /// Summed over all workers, in place. Borrowed; null on all workers or on none.
  SaveVotes* votes = nullptr;
  /// Finite numbers that are summed over all workers, in place, such as times of ops (SharedTimes in
  /// engine/adaptation.h); as many on all workers.
  std::span<double> shared = {};
};

/// Results of a step, equal on all workers.
struct StepResult {
  std::vector<double> losses;  // [data-parallel group][micro-batch]: scaled losses, as in StepLosses
  double loss = 0;             // Mean of a training step; set by StepDriver, which adds `losses` in data order
  // Over all stages, before clipping; 0 without backwards; root mean square over several updates
  double gradient_norm = 0;
  double peak_memory_bytes = 0;   // Maximum over workers
  double used_memory_bytes = 0;   // Maximum over workers
  double allocation_retries = 0;  // Since the start; maximum over workers
  bool is_skipped = false;        // Weights were not updated: non-finite result, or UpdateHooks::is_left_out
};

}  // namespace chimera
