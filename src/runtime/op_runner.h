#pragma once

// Computes the ops of a worker: forwards, whole backwards, and input and weight gradients of split backwards.
//
//   forward (F)           input from Messages or the micro-batch; output to Messages or the losses; Activations keep
//                         input, output and graph for the backward
//   backward (B)          takes the activation and the gradient from the next stage; adds weight gradients; passes the
//                         gradient of the input back
//   input gradient (I)    the same, but keeps the functions that add weight gradients
//   weight gradient (W)   runs these functions
//
// The two ops of a pair (a forward and a backward of another micro-batch) run at the same time, the forward on a helper
// thread. If a micro-batch runs in slices of its tokens, attention's keys and values are kept for the later slices,
// until the backward of slice 0.

#include <memory>
#include <optional>
#include <unordered_map>
#include <vector>

#include "model/key_value_cache.h"
#include "model/linear.h"
#include "runtime/activations.h"
#include "runtime/gradient_sums.h"
#include "runtime/helper_thread.h"
#include "runtime/messages.h"
#include "runtime/non_finite.h"
#include "runtime/recordings.h"
#include "runtime/step_hooks.h"
#include "runtime/tracer.h"
#include "runtime/worker_context.h"
#include "transport/stream.h"

namespace chimera {

/// Runs the ops for the executor, on the worker's own thread. Borrows its arguments. Throws the errors of stages and of
/// `load`.
class OpRunner {
 public:
  OpRunner(const WorkerContext& worker, Messages& messages, Activations& activations, GradientSums& sums);

  /// Called at the start of a program. If it has no backwards (`trains` is false), forwards keep no autograd graph, and
  /// their times are not recorded.
  void begin(bool trains, at::Device device) {
    device_ = device;
    trains_ = times_ops_ = trains;
  }
  /// Stops the measurement of times, as while ops are recorded as a graph, or starts it again.
  void time_ops(bool on) { times_ops_ = on; }
  /// Adds the times of ops on a device to times(). Call it when the host has waited for the device.
  void read_times() { work_.read(); }

  /// Computes an op, and adds its time to times(). Calls `load` for the micro-batch of a forward.
  void compute(const Op& op, const LoadMicroBatch& load);
  /// Computes both ops of a pair at the same time; `second` is the backward. Calls `on_forward` after the backward,
  /// before it waits for the forward: errors from then on belong to the forward.
  void compute_pair(const Op& forward, const Op& second, const LoadMicroBatch& load,
                    const std::function<void()>& on_forward);
  /// Runs the forward of `backward` again from its input, and keeps the new activation. Its time counts as a
  /// recomputation.
  void recompute(const Op& backward, const LoadMicroBatch& load);

  /// Drops all results of an abandoned step.
  void drop();

  /// Returns the losses so far; the caller removes the losses of finished steps.
  [[nodiscard]] StepLosses& losses() { return losses_; }
  /// Returns the ops whose results had infinite or NaN elements. The caller removes the ops of finished steps.
  [[nodiscard]] std::vector<Op>& non_finite() { return non_finite_; }
  /// Returns the device graphs of the ops (--op-graphs), which compute() launches once they are recorded.
  [[nodiscard]] RecordedOps& recorded() { return recorded_; }
  [[nodiscard]] OpTimes& times() { return times_; }
  [[nodiscard]] const OpTimes& times() const { return times_; }

 private:
  struct Forward {  // In progress
    Op op;
    MicroBatch batch = {};
    Activation activation = {};
    bool keeps_graph = true;
    bool gets_nan = false;  // An injected fault
  };

  struct Timing {  // Of an op
    Stopwatch watch;
    std::optional<TimeMark> begin = std::nullopt;  // Only on a device
  };

  [[nodiscard]] Timing start_timing() const;
  void end_timing(const Timing& timing, StageId stage, std::size_t kind);
  Forward begin_forward(const Op& op, const LoadMicroBatch& load);
  void run(Forward& forward) const;
  [[nodiscard]] bool repeat(Forward& forward);
  void end_forward(Forward forward);
  [[nodiscard]] static at::Tensor run_backward(Activation& activation, const at::Tensor& gradient,
                                               bool defers_weight_gradients);
  [[nodiscard]] Activation propagate(const Op& op, bool defers_weight_gradients);
  void input_gradient(const Op& op);
  void weight_gradient(const Op& op);
  MicroBatch load_slice(const Op& op, const LoadMicroBatch& load);
  void forget_cache(const Op& op);

  const WorkerContext& worker_;
  Messages& messages_;
  Activations& activations_;
  GradientSums& sums_;
  at::Device device_ = at::kCPU;
  bool trains_ = false;
  bool times_ops_ = false;  // Not in validation: mean times are those of training steps
  TimedWork work_;
  StepLosses losses_;
  std::vector<Op> non_finite_;
  OpTimes times_;
  RecordedOps recorded_;
  std::optional<HelperThread> helper_;                                          // Created at the first pair
  std::unordered_map<OpKey, WeightGradients::Pointer> weight_gradients_;        // Between I and W, by forward
  std::unordered_map<OpKey, std::shared_ptr<KeyValueCache>> key_value_caches_;  // By the forward of slice 0
};

}  // namespace chimera
