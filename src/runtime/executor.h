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

#include "model/carried_key_values.h"
#include "model/linear.h"
#include "model/stage.h"
#include "runtime/canonical_sums.h"
#include "runtime/gradient_norms.h"
#include "runtime/non_finite.h"
#include "runtime/recorded_steps.h"
#include "runtime/saved_tensors.h"
#include "runtime/step_sums.h"
#include "runtime/tracer.h"
#include "runtime/weight_versions.h"
#include "schedule/program.h"
#include "transport/transport.h"

namespace chimera {

/// Thread that runs one function at a time, with the caller's thread-local state of LibTorch.
class HelperThread {
 public:
  HelperThread();
  ~HelperThread();
  HelperThread(const HelperThread&) = delete;
  HelperThread& operator=(const HelperThread&) = delete;

  /// Starts `work`; the future holds its end or exception. The previous work must have ended.
  [[nodiscard]] std::future<void> begin(const std::function<void()>& work);

 private:
  void loop();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<std::packaged_task<void()>> next_;
  bool ends_ = false;
  std::thread thread_;
};

/// Callbacks and data of a step, for the worker's own thread. Programs that update stages separately do not support
/// skip_non_finite, leaves_out_update and record.
struct StepHooks {
  /// Step number, from 1; both ends of a message must agree.
  std::int64_t step = 0;
  std::function<void(const Instruction& instruction)> on_instruction = {};
  /// Loads the tensors of a micro-batch that `stage` reads: tokens (first stage), targets (last stage), masks if used.
  std::function<MicroBatch(StageId stage, MicroBatchId micro_batch)> load;
  /// Updates the weights, given the gradient norm over all stages. Not called by programs without backwards.
  std::function<void(double gradient_norm)> optimizer_step;
  std::function<double()> peak_memory;
  /// Returns the bytes in use on this worker's device, by all processes. Empty on the CPU.
  std::function<double()> used_memory = {};
  /// Updates the weights of a stage, given the norm of its gradients. `last` is the last micro-batch in them. Only
  /// called by programs that update stages separately.
  std::function<void(StageId stage, MicroBatchId last, double gradient_norm)> update_weights = {};
  /// Called on a device, if set, when all work before the optimizer step is enqueued and before the host waits.
  std::function<void()> before_wait = {};
  /// Summed over all workers, in place. Borrowed; null on all workers or on none.
  SaveVotes* votes = nullptr;
  /// If set, a step with a non-finite loss or gradient norm changes no weights. Called on all workers with the source;
  /// `is_own` is true on the worker that made it. May throw.
  std::function<void(const std::string& what, bool is_own)> skip_non_finite = {};
  bool leaves_out_update = false;
  /// Records instruction times in the step that it has begun; borrowed, may be null.
  Tracer* tracer = nullptr;
  /// If set, device work before the step's sums is recorded in the third training step, then repeated (RecordedSteps).
  /// `on_instruction` is then called once for this part, with its first instruction. Not with dropout. Set on all
  /// workers or on none.
  CaptureGraph record = {};
  /// With `record`: loads the micro-batches of the next training step. Empty in the last step.
  std::function<MicroBatch(StageId stage, MicroBatchId micro_batch)> load_next = {};
};

struct StepResult {
  std::vector<double> losses;  // [group][micro-batch]: scaled loss sums, equal on all workers
  // over all stages, before clipping; 0 without backwards; root mean square over several updates
  double gradient_norm = 0;
  double peak_memory_bytes = 0;  // maximum over workers
  double used_memory_bytes = 0;  // maximum over workers
  bool is_skipped = false;       // weights were not updated: non-finite result, or leaves_out_update
};

/// Runs a worker's program. Stages, transport and hooks are borrowed. The forward of a pair runs on a helper thread. A
/// backward frees its activations and received gradient; after I, only the data for W stay. WaitSend frees a sent
/// activation. A recomputed forward keeps only its input. Offload leaves input and output of a stage that is not
/// recomputed. Keys and values of slices stay until the backward of slice 0.
/// A program may be a piece of a longer one: pending operations and weight versions carry over.
class Executor {
 public:
  /// `message` has the sizes and type of whole hidden states, [b, L, H]. `tied` is the tied matrix if this worker owns
  /// it, else null.
  Executor(WorkerId worker, std::map<StageId, Stage*> stages, Transport& transport, TensorSpec message,
           ProgramShape shape, ParameterGroup* tied = nullptr);
  Executor(const Executor&) = delete;  // members refer to each other
  Executor& operator=(const Executor&) = delete;

  /// Runs the instructions once. Zeros the gradients first if an optimizer step follows. Programs without backwards use
  /// the newest weights. Throws the errors of stages, transport and hooks; current() then names the instruction. If a
  /// loss or the gradient norm is not finite and `skip_non_finite` is empty, ReduceScalars throws before the optimizer
  /// step: Error on the worker that made it, PeerLostError on the others. Asynchronous programs have changed some
  /// weights by then.
  StepResult run(const std::vector<Instruction>& program, const StepHooks& hooks);

  /// Runs the ops, sums and norms of a synchronous program once, with zeros as received messages and without an update,
  /// and zeros the gradients if there are backwards. Collective: returns once all ranks have launched their ops.
  /// `hooks` are as for run(), but only load, on_instruction, peak_memory and before_wait are called.
  ///
  /// Call it on a GPU before the first program with receives. A GPU's first use of an op in a process may wait until
  /// the whole GPU is idle: CUDA loads a kernel, a library builds it, or cuDNN plans attention for a new shape,
  /// separately on each thread. The program posts receives before its first op. A rank that waits for its own receives
  /// has not sent what its peers wait for, and all ranks deadlock.
  void warm_up(const std::vector<Instruction>& program, StepHooks hooks);

  /// Abandons the step after run() threw, so that it can be repeated. Not for programs that update stages separately.
  void drop();

  /// Calls Transport::connect_sums() for all parameter groups. Call it once, before the first step; collective.
  void connect_sums() const;

  [[nodiscard]] std::string current() const;
  [[nodiscard]] const OpTimes& op_times() const { return op_times_; }
  void forget_op_times() { op_times_.forget(); }

 private:
  struct Activation {  // data for backward; before recomputation only the input
    at::Tensor input;
    at::Tensor output;
    WeightGradients::Pointer weight_gradients;
    std::unique_ptr<SavedTensors> saved;  // null: stays on the device
    SavedTensors::Pointer saved_input;    // the offloaded input of a recomputed forward
  };
  struct Forward {  // forward in progress
    Op op;
    Stage* stage = nullptr;
    MicroBatch batch = {};
    Activation activation = {};
    bool keeps_graph = true;
    bool is_spoiled = false;
  };
  using Key = std::uint64_t;
  static Key key(const Op& op);

  void begin(const std::vector<Instruction>& program);
  void prepare_copies(const std::vector<Instruction>& program);
  void run_part(std::span<const Instruction> part, const StepHooks& hooks);
  void repeat_part(std::span<const Instruction> part, const StepHooks& hooks);
  void note(const Instruction& instruction, const StepHooks& hooks);
  const TensorSpec& message(const Op& maker) const;
  MicroBatch load(const Op& op, const StepHooks& hooks);
  void forget_carried(const Op& op);
  void execute(const Instruction& instruction, const StepHooks& hooks);
  void compute(const Op& op, const StepHooks& hooks);
  void compute_pair(const Instruction& forward, const Instruction& backward, const StepHooks& hooks);
  Forward begin_forward(const Op& op, const StepHooks& hooks);
  static void run(Forward& forward);
  void end_forward(Forward forward);
  void recompute(const Op& backward, const StepHooks& hooks);
  void offload(const Op& op);
  static void await_load(Activation& activation);
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
  StepSums sum_numbers(std::int64_t step, const StepHooks& hooks);
  void reduce_scalars(std::int64_t step, const StepHooks& hooks);
  void handle_non_finite(std::span<const double> squares, const std::vector<Op>& suspects, std::int64_t step,
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
  std::vector<TensorSpec> slices_;  // [slice]: of message_; empty: micro-batches run whole
  StageId last_stage_;
  std::map<ParameterGroupId, ParameterGroup*> groups_;            // stages and tied matrix
  std::map<ParameterGroupId, std::vector<std::int64_t>> shards_;  // shard_sizes(); empty vectors: all-reduces
  GradientNorms norms_;
  std::optional<CanonicalSums> canonical_;
  bool trains_ = false;  // the current program has backwards
  std::optional<Instruction> current_;
  NonFiniteOps non_finite_;
  StepResult result_;
  OpTimes op_times_;
  std::optional<HelperThread> helper_;  // created at the first pair
  RecordedSteps recorded_;
  std::unordered_set<StageId> recomputed_;
  std::unordered_set<Key> offloaded_;                     // forwards
  std::shared_ptr<HostCopies> copies_;                    // null until a program offloads
  std::unordered_map<StageId, WeightVersions> versions_;  // versions of the stages that are updated separately
  std::unordered_map<Key, Activation> activations_;       // by forward op
  std::unordered_map<Key, WeightGradients::Pointer> weight_gradients_;  // between I and W, by forward op
  std::unordered_map<Key, std::shared_ptr<CarriedKeyValues>> carried_;  // by the forward of slice 0
  std::unordered_map<Key, at::Tensor> tensors_;  // made or received here, by the op that makes them
  RecordedSteps::Losses losses_;
  std::unordered_map<Key, std::unique_ptr<Pending>> sends_;
  std::unordered_map<Key, std::unique_ptr<Pending>> receives_;
  std::unordered_map<ParameterGroupId, std::unique_ptr<Pending>> all_reduces_;
};

}  // namespace chimera
