#pragma once

// What a training loop gives to the executor for one step, and what it gets back. The executor runs a program without
// knowing where samples come from, how weights are updated or who watches the run; these functions connect it to them.
// All run on the worker's own thread.

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "model/stage.h"
#include "runtime/step_sums.h"
#include "runtime/tracer.h"
#include "schedule/program.h"
#include "transport/device_graph.h"

namespace chimera {

/// Loads the tensors of a micro-batch that `stage` reads: tokens (first stage), targets (last stage), masks if used.
using LoadMicroBatch = std::function<MicroBatch(StageId stage, MicroBatchId micro_batch)>;

/// Scaled loss sums, [] each, of the micro-batches whose last stage runs here.
using StepLosses = std::unordered_map<MicroBatchId, at::Tensor>;

/// How weights change. Programs that update stages separately support neither skip_non_finite nor is_left_out.
struct UpdateHooks {
  /// Updates the weights, given the gradient norm over all stages. Not called by programs without backwards.
  std::function<void(double gradient_norm)> all_stages = {};
  /// Updates the weights of a stage, given the norm of its gradients. `last` is the last micro-batch in them. Only
  /// called by programs that update stages separately.
  std::function<void(StageId stage, MicroBatchId last, double gradient_norm)> one_stage = {};
  /// If set, a step with a non-finite loss or gradient norm changes no weights. Called on all workers with the source;
  /// `is_own` is true on the worker that made it. May throw.
  std::function<void(const std::string& what, bool is_own)> skip_non_finite = {};
  bool is_left_out = false;  ///< The step changes no weights
};

/// Who watches the step.
struct ObservationHooks {
  std::function<void(const Instruction& instruction)> on_instruction = {};
  /// Called on a device, if set, when all work before the optimizer step is enqueued and before the host waits.
  std::function<void()> before_wait = {};
  std::function<double()> peak_memory = [] { return 0.0; };
  /// Returns the bytes in use on this worker's device, by all processes. Empty on the CPU.
  std::function<double()> used_memory = {};
  /// Records instruction times in the step that it has begun; borrowed, may be null.
  Tracer* tracer = nullptr;
};

/// Repetition of device work (RecordedSteps). Not with dropout or updates of separate stages.
struct RecordingHooks {
  /// If set, device work before the step's sums is recorded in the third training step, then repeated.
  /// `on_instruction` is then called once for this part, with its first instruction. Set on all workers or on none.
  CaptureGraph record = {};
  /// Loads the micro-batches of the next training step. Empty in the last step.
  LoadMicroBatch load_next = {};
};

struct StepHooks {
  /// Step number, from 1; both ends of a message must agree.
  std::int64_t step = 0;
  LoadMicroBatch load;
  UpdateHooks update = {};
  ObservationHooks observation = {};
  RecordingHooks recording = {};
  /// Summed over all workers, in place. Borrowed; null on all workers or on none.
  SaveVotes* votes = nullptr;
};

struct StepResult {
  std::vector<double> losses;  // [group][micro-batch]: scaled loss sums, equal on all workers
  // Over all stages, before clipping; 0 without backwards; root mean square over several updates
  double gradient_norm = 0;
  double peak_memory_bytes = 0;  // Maximum over workers
  double used_memory_bytes = 0;  // Maximum over workers
  bool is_skipped = false;       // Weights were not updated: non-finite result, or UpdateHooks::is_left_out
};

}  // namespace chimera
