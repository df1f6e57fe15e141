#pragma once

// Trains a user's own model with any synchronous schedule, from C++ or Python (docs/library.md, docs/python.md). A
// model is a list of layer factories and a loss. prepare_fit() divides the layers into stages and makes the program of
// the schedule. Each rank then constructs a RankFit, which trains the stages of this rank over a Transport. fit() does
// both for ranks that are threads of this process; the Python package constructs a RankFit in each process.

#include "engine/dealing.h"
#include "engine/optimizer.h"
#include "engine/optimizer_options.h"
#include "engine/run_shape.h"
#include "engine/step_driver.h"
#include "generate/registry.h"
#include "model/layers.h"
#include "model/module_stage.h"
#include "passes/lower.h"
#include "plan/stage_choice.h"
#include "runtime/worker_context.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "transport/groups.h"
#include "transport/transport.h"

namespace chimera {

/// Layer factories and a loss. A factory makes a new layer; each rank calls only the factories of its stages. torch's
/// random generator is seeded for each layer, so initial values depend only on FitOptions::seed and the layer.
struct Model {
  std::vector<LayerFactory> layers;
  Loss loss;
};

/// Samples first .. first + count - 1 of a step's mini-batch.
struct SampleRange {
  std::int64_t step = 0;  // from 0
  std::int64_t first = 0;
  std::int64_t count = 0;
};

/// Samples of a SampleRange. The first dimension of every tensor has length SampleRange::count.
struct Batch {
  at::Tensor input;
  at::Tensor target;
  std::vector<at::Tensor> more_inputs = {};  // The first layer takes `input` and these
};

/// Deterministic function that returns the samples of a range. Ranks of the first and last stage call it concurrently,
/// and repeatedly for the same range. The trainer does not modify the returned tensors.
using Data = std::function<Batch(const SampleRange&)>;

/// Error for a step without anything to train on: Loss::count is 0 for the targets of all its samples. All ranks throw
/// it before they run the first op of the step, so the run can continue with other data.
class NoTargetsError : public ConfigError {
  using ConfigError::ConfigError;
};

/// Settings of a run.
struct FitOptions {
  std::string schedule = kDefaultSchedule;  // name in the registry, or "none": unpipelined, on a single rank
  PipelineShape shape{.stages = 4, .micro_batches = 0};  // micro_batches 0: number of stages
  std::optional<Schedule> own_schedule;                  // replaces `schedule` and `shape`
  // Number of layers of each stage; empty: even, the first stages may have one more
  std::vector<std::int64_t> partition;
  std::int64_t data_parallel = 1;     // data-parallel groups, which run the schedule concurrently
  std::int64_t micro_batch_size = 1;  // samples
  std::int64_t steps = 1;
  std::uint64_t seed = 1;                              // of initial values and KeyedDropout
  ReductionOrder reduction = ReductionOrder::Natural;  // Natural: gradients are added as backwards run
  // For ReductionOrder::Canonical: number of blocks that a step's micro-batches are divided into (canonical.h); 0:
  // default_reduction_blocks()
  std::int64_t reduction_blocks = 0;
  StageChoice recompute;  // stages that use activation checkpointing; `auto` is not allowed
  // Receives per peer that are posted before they are needed; set it to kReceivesAheadOnGpus for ranks with GPUs
  std::int64_t receives_ahead = LoweringOptions().receives_ahead;
  OptimizerOptions optimizer;
  LearningRate learning_rate;
  double clip = 0;           // largest global gradient norm; 0: no clipping
  std::int64_t threads = 0;  // intra-op threads per rank; 0: cores / ranks, at least 1
};

/// Result of prepare_fit(): a validated run, identical on all ranks.
struct FitRun : RunShape {
  Model model;
  Data data;
  FitOptions options;
  std::vector<std::int64_t> ends;               // [stage]: index after its last layer
  std::set<StageId> recompute;                  // stages with activation checkpointing
  Program program;                              // of a training step
  Program validation;                           // of a validation step: forwards only
  std::optional<CanonicalReduction> canonical;  // set for ReductionOrder::Canonical
  DealtStep dealt;                              // order of micro-batches in the next steps; only micro_batch_at is set
  // Sums each rank's number of targets over all ranks without a wait for GPUs; empty: Transport::all_sum()
  std::function<double(double)> sum_targets;

  /// Returns the samples of a micro-batch of a data-parallel group in step `step`, from 0.
  [[nodiscard]] SampleRange samples(std::int64_t step, GroupId group, MicroBatchId micro_batch) const;
  /// Return what ModuleStage needs to make a stage (model/module_stage.h).
  [[nodiscard]] ModuleStageSpec stage(StageId id) const;
  [[nodiscard]] ModuleUse use(StageId id) const;
  /// Returns the rank that holds the stage in replica 0 of group 0. All other ranks that hold the stage receive its
  /// initial values from this rank.
  [[nodiscard]] RankId owner(StageId id) const;
  /// Returns all pairs of ranks that exchange messages or initial values, in ascending order.
  [[nodiscard]] std::vector<RankPair> communicating_pairs() const;
};

/// Validates the schedule, makes its program, and proves that the program cannot deadlock. Calls no factory. Throws
/// ConfigError for invalid shapes, unknown names, asynchronous schedules, schedules with slices, or nonexistent stages
/// to recompute; ScheduleError if check() finds a violation.
[[nodiscard]] FitRun prepare_fit(Model model, Data data, FitOptions options);

/// Result of a training step, identical on every rank.
struct FitStep {
  std::int64_t step = 0;     // from 1
  double loss = 0;           // sum of the losses of all targets, divided by their number (Loss::sum, Loss::count)
  double gradient_norm = 0;  // norm of all gradients of the model, before clipping
  double learning_rate = 0;
  bool is_skipped = false;  // no update: the loss or a gradient was not finite
};

/// Trains the stages of one rank, in the calling thread. Borrows run and transport. The constructor and the functions
/// that train or validate are collective: all ranks must call them in the same order.
class RankFit {
 public:
  /// `transport` connects all ranks (transport/threads/thread_transport.h, transport/gloo/gloo_transport.h). Throws
  /// ConfigError if a module cannot be trained (see ModuleStage), or if no stage has a parameter to train.
  RankFit(const FitRun& run, RankId rank, Transport& transport);

  /// If there are several ranks with GPUs, runs the ops of a training step, or of a validation, once without messages,
  /// on the samples of step 0, because the first run of an op may wait for the device (Executor::warm_up()). Buffers
  /// and torch's random generators stay unchanged. Does nothing at later calls. train_step() and validation_loss() call
  /// it first.
  void warm_up() { warm_up(run_.program, is_warm_); }
  void warm_up_validation() { warm_up(run_.validation, is_validation_warm_); }

  /// Trains step `step`, from 0. Throws Error (on other ranks PeerLostError) if the loss or the gradient norm is not
  /// finite, NoTargetsError if Loss::count is 0 for all targets of the step.
  FitStep train_step(std::int64_t step);
  /// Update of the weights by the caller: receives the norm of all gradients, and may change gradients and parameters
  /// of stages().
  using Update = std::function<void(double gradient_norm)>;
  /// Trains step `step` as above, but calls `update` instead of the optimizer of FitOptions; ignores its learning rate
  /// and clipping. If `skip_non_finite`, all ranks skip the update if the loss or a gradient is not finite, as dynamic
  /// loss scaling needs.
  FitStep train_step(std::int64_t step, const Update& update, bool skip_non_finite = false);
  /// Sets a function that each training step calls once for each stage here, after its last backward and before its
  /// gradients are summed over replicas and enter the norm. A module that has not added all of its gradients yet, such
  /// as one that PyTorch shards, adds them then.
  void complete_gradients(std::function<void(StageId)> complete) { complete_ = std::move(complete); }
  /// Returns the loss on the step's samples, also one that is not finite. Runs only forwards, without autograd graphs.
  double validation_loss(std::int64_t step);

  [[nodiscard]] const std::map<StageId, std::unique_ptr<ModuleStage>>& stages() const { return stages_; }
  /// Returns the op that this rank runs, such as `1F3` (forward of micro-batch 3 at stage 1); empty between steps.
  /// Error messages name it.
  [[nodiscard]] std::string current() const { return driver_->executor().current(); }

 private:
  [[nodiscard]] at::Device device() const;
  void warm_up(const Program& program, bool& is_warm);
  void load_targets(std::int64_t step);
  StepHooks hooks(std::int64_t step, const Update& update);
  [[nodiscard]] std::function<void(const Instruction&)> completion() const;
  MicroBatch load(std::int64_t step, StageId stage, MicroBatchId micro_batch) const;

  const FitRun& run_;
  GroupWorker place_;
  Transport& transport_;
  std::map<StageId, std::unique_ptr<ModuleStage>> stages_;
  std::unique_ptr<Optimizer> optimizer_;  // created by the first step that needs it
  std::unique_ptr<StepDriver> driver_;
  std::map<MicroBatchId, at::Tensor> targets_;  // of the current step, on ranks of the last stage
  double loss_scale_ = 1;                       // 1 / count of the step
  std::function<void(StageId)> complete_;
  bool is_warm_ = false;
  bool is_validation_warm_ = false;
};

/// Trained values by name. A name is the index of the layer in the model and the parameter's name in the module:
/// `3.weight`.
using Parameters = std::map<std::string, at::Tensor>;

/// Trains all steps with a thread per rank. Calls `on_step` (may be null) after each step, in the caller's thread.
/// Returns copies of the trained parameters. Throws the first failure: ConfigError for a module that cannot be trained
/// (see ModuleStage), Error for a loss that is not finite, or exceptions of the data function or `on_step`.
Parameters fit(const FitRun& run, const std::function<void(const FitStep&)>& on_step = {});

}  // namespace chimera
