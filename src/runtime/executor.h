#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/linear.h"
#include "model/stage.h"
#include "runtime/canonical_sums.h"
#include "runtime/gradient_norms.h"
#include "runtime/non_finite.h"
#include "runtime/recorded_steps.h"
#include "runtime/tracer.h"
#include "runtime/weight_versions.h"
#include "schedule/program.h"
#include "transport/transport.h"

// A second thread of a worker, for what runs beside its own.

// Runs one worker's program: a loop and a switch. It cannot know which schedule the program came from.

namespace chimera {

/// Runs one piece of work at a time, with LibTorch's thread-local state (gradients on or off, what counts memory) of
/// whoever hands it over. The thread ends with the object.
class HelperThread {
 public:
  HelperThread();
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  /// Begins `work`; the future has its end, or what it threw. Requires that the work before has ended.
  [[nodiscard]] std::future<void> begin(const std::function<void()>& work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::packaged_task<void()>> next_;
  bool ends_ = false;
  std::thread thread_;
};

/// What a step needs from outside the runtime. All are called on the worker's own thread.
struct StepHooks {
  /// The number of the step, from 1; both ends of a message must agree on it.
  std::int64_t step = 0;
  /// Called before every instruction, where it is set.
  std::function<void(const Instruction& instruction)> on_instruction = {};
  /// The tensors of a micro-batch that `stage` reads: tokens on the first, targets on the last, masks where they are
  /// used.
  std::function<MicroBatch(StageId stage, MicroBatchId micro_batch)> load;
  /// Updates the weights, given the gradient norm over all stages. Not called by programs without backwards.
  std::function<void(double gradient_norm)> optimizer_step;
  /// Bytes this worker's process has held at most; the step reports the largest of all workers.
  std::function<double()> peak_memory;
  /// Updates the weights of one stage, given the norm of its own gradients; `last` is the last micro-batch that
  /// entered. Called by programs that update stages one by one.
  std::function<void(StageId stage, MicroBatchId last, double gradient_norm)> update_weights = {};
  /// Called where it is set, and layers are on a device, when that has been given all of the step up to the optimizer's
  /// part, before the host waits for it.
  std::function<void()> before_wait = {};
  /// Numbers of this worker that are added over all workers beside the step's own sums, in place: as many on each.
  std::span<double> sums = {};
  /// Where it is set, a step whose loss or gradient norm is not finite ends nothing: this is told what was not, on all
  /// workers, `is_own` on the one that made it, and weights stay as they were. It may throw. Not for programs that
  /// update stages one by one.
  std::function<void(const std::string& what, bool is_own)> skip_non_finite = {};
  /// The step makes no update, whatever its gradients are. Not for programs that update stages one by one.
  bool leaves_out_update = false;
  /// Notes when instructions run, in the step it has begun; borrowed. Null: nothing is noted.
  Tracer* tracer = nullptr;
  /// Where it is set, what training gives the device up to the step's sums is recorded in the third step and repeated
  /// from then on (RecordedSteps); `on_instruction` is then called before all of that once, with its first. Not for
  /// programs that update stages one by one, nor with dropout.
  RecordWork record = {};
};

struct StepResult {
  std::vector<double> losses;    // [group][micro-batch]: scaled loss sums, the same on every worker of every group
  double gradient_norm = 0;      // over all stages, each once, before clipping; 0 without backwards; root mean square
                                 // of the step's updates where there are several
  double peak_memory_bytes = 0;  // of the worker with the most
  bool is_skipped = false;       // weights were not updated, as something was not finite or the hooks have it so
};

/// Owns nothing that outlives a step but its measurements: stages, transport and hooks are borrowed. A pair of the
/// program runs on two threads: its forward on one of the executor's own, its backward on the worker's.
/// Activations are freed by their backward (after I only what W needs is kept, until W), a sent activation when the
/// program waits for its send, a received gradient by the backward that uses it. A forward of a stage that the program
/// recomputes keeps only its input. A program may be a piece of a longer one: what is under way at its end goes on in
/// the next, and so do the weight versions of stages that programs update one by one.
class Executor {
 public:
  /// `stages`: those this worker holds. `message`: sizes and type of the hidden states that travel, [b, L, H]. `tied`:
  /// the tied matrix where this worker owns one.
  Executor(WorkerId worker, std::map<StageId, Stage*> stages, Transport& transport, TensorSpec message,
           ProgramShape shape, ParameterGroup* tied = nullptr);
  Executor(const Executor&) = delete;  // its parts refer to each other
  Executor& operator=(const Executor&) = delete;

  /// Runs the instructions once. Gradients are zeroed first where an optimizer step follows. Without backwards ops use
  /// the newest weights.
  /// Throws what a stage, the transport or a hook throws; current() then says where. Where a loss or the gradient norm
  /// is not finite, and no hook skips such steps, ReduceScalars throws before any weight changes (an asynchronous
  /// program has changed some by then): Error on the worker with the op or gradient that was so first, PeerLostError on
  /// the others.
  StepResult run(const std::vector<Instruction>& program, const StepHooks& hooks);

  /// After run() threw: gives the step up, with all that is under way, so that it can be run again. Not for programs
  /// that update stages one by one.
  void drop();

  /// The instruction under way, in words; empty between steps.
  [[nodiscard]] std::string current() const;
  /// Durations of the ops run so far, forwards of programs without backwards not counted.
  [[nodiscard]] const OpTimes& op_times() const { return op_times_; }
  void forget_op_times() { op_times_ = OpTimes(op_times_.num_stages()); }

 private:
  struct Activation {  // what backward needs of a forward; before its recomputation the input alone
    at::Tensor input;
    at::Tensor output;
    WeightGradients::Pointer weight_gradients;
  };
  struct Forward {  // one under way, which needs nothing else of the executor
    Op op;
    Stage* stage = nullptr;
    MicroBatch batch = {};
    Activation activation = {};  // its input; once it has run the rest
    bool keeps_graph = true;
    bool is_spoiled = false;
  };
  using Key = std::uint64_t;
  static Key key(const Op& op);

  void begin(const std::vector<Instruction>& program);
  void run_part(std::span<const Instruction> part, const StepHooks& hooks);
  void repeat_part(std::span<const Instruction> part, const StepHooks& hooks);
  void note(const Instruction& instruction, const StepHooks& hooks);
  const TensorSpec& message(const Op& maker) const;
  void execute(const Instruction& instruction, const StepHooks& hooks);
  void compute(const Op& op, const StepHooks& hooks);
  void compute_pair(const Instruction& forward, const Instruction& backward, const StepHooks& hooks);
  Forward begin_forward(const Op& op, const StepHooks& hooks);
  static void run(Forward& forward);
  void end_forward(Forward forward);
  void recompute(const Op& backward, const StepHooks& hooks);
  void backward(const Op& op);
  void input_gradient(const Op& op);
  void weight_gradient(const Op& op);
  Activation propagate(const Op& op, bool defer_weight_gradients);
  void wait_send(const Op& op);
  void wait_receive(const Op& op);
  void start_all_reduce(ParameterGroupId id, Tracer* tracer);
  std::unique_ptr<Pending> start_sum(ParameterGroupId id);
  void wait_all_reduce(ParameterGroupId id);
  void update_weights(const Op& op, const StepHooks& hooks);
  void use_weights(const Op& op);
  std::vector<double> sum_numbers(std::int64_t step, const StepHooks& hooks, std::size_t num_losses);
  void reduce_scalars(std::int64_t step, const StepHooks& hooks);
  void meet_non_finite(std::span<const double> squares, const std::vector<Op>& suspects, std::int64_t step,
                       const StepHooks& hooks);
  [[nodiscard]] std::int64_t step_of(MicroBatchId id) const { return id.value() / shape_.micro_batches; }
  [[nodiscard]] std::int64_t step_of(MicroBatchId id, const StepHooks& hooks) const { return hooks.step + step_of(id); }
  at::Tensor take(const Op& maker);
  at::Tensor take_gradient(Op maker);

  WorkerId worker_;
  std::map<StageId, Stage*> stages_;
  Transport& transport_;
  TensorSpec message_;
  ProgramShape shape_;
  StageId last_stage_;
  std::map<ParameterGroupId, ParameterGroup*> groups_;  // the stages, and the tied matrix
  GradientNorms norms_;
  std::optional<CanonicalSums> canonical_;
  bool trains_ = false;  // the program under way has backwards
  const Instruction* current_ = nullptr;
  NonFiniteOps non_finite_;
  Instruction blamed_;  // where current_ points once an op is to blame
  StepResult result_;
  OpTimes op_times_;
  std::optional<HelperThread> helper_;                                  // since the first pair
  RecordedSteps recorded_;                                              // of steps that are recorded
  std::unordered_set<StageId> recomputed_;                              // stages whose forwards the program runs again
  std::unordered_map<StageId, WeightVersions> versions_;                // of stages that programs update by themselves
  std::unordered_map<Key, Activation> activations_;                     // by forward op
  std::unordered_map<Key, WeightGradients::Pointer> weight_gradients_;  // between I and W, by the forward op
  std::unordered_map<Key, at::Tensor> tensors_;  // made or arrived here, by the op that makes them
  RecordedSteps::Losses losses_;
  std::unordered_map<Key, std::unique_ptr<Pending>> sends_;
  std::unordered_map<Key, std::unique_ptr<Pending>> receives_;
  std::unordered_map<ParameterGroupId, std::unique_ptr<Pending>> all_reduces_;
};

}  // namespace chimera
