#pragma once

#include <ATen/core/Tensor.h>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/choices.h"
#include "core/error.h"
#include "engine/optimizer.h"
#include "engine/optimizer_options.h"
#include "engine/run_shape.h"
#include "generate/registry.h"
#include "model/layers.h"
#include "model/module_stage.h"
#include "plan/recompute_choice.h"
#include "runtime/canonical_sums.h"
#include "runtime/executor.h"
#include "schedule/program.h"
#include "schedule/schedule.h"
#include "transport/groups.h"
#include "transport/transport.h"

// Training a user's own model: what it is made of, and how it is to be trained.

// One rank of a run that trains a user's model: a worker of one data-parallel group.

// Training a user's own model by any synchronous schedule, on rank threads. docs/library.md shows it at work.

namespace chimera {

/// A model is a list of layers, which stages take runs of. Factories, so that each rank makes those of its own stages
/// alone; initial values that they draw from torch's generator depend on FitOptions::seed and the layer alone.
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

/// `count` samples along the first dimension of both.
struct Batch {
  at::Tensor input;   // for the first layer
  at::Tensor target;  // for the loss
};

/// A function of its argument alone: called for the same range on the ranks of the first and of the last stage, at once
/// and more than once. What it returns is not written to.
using Data = std::function<Batch(const SampleRange&)>;

struct FitOptions {
  std::string schedule = kDefaultSchedule;  // of the registry, or "none": unpipelined, on one rank
  PipelineShape shape{4, 0, 2};             // micro_batches 0: as many as stages
  std::optional<Schedule> own_schedule;     // in place of both, as from a file
  std::vector<std::int64_t> partition;      // layers of each stage; empty: even, the first stages one more
  std::int64_t data_parallel = 1;           // W: groups that run the schedule side by side
  std::int64_t micro_batch_size = 1;        // samples
  std::int64_t steps = 1;
  std::uint64_t seed = 1;  // of initial values and KeyedDropout
  ReductionOrder reduction = ReductionOrder::Natural;
  std::int64_t reduction_blocks = 0;  // Q, of canonical; 0: default_reduction_blocks()
  RecomputeChoice recompute;          // activation checkpointing: stages that keep only their inputs; not `auto`
  OptimizerOptions optimizer;
  LearningRate learning_rate;
  double clip = 0;           // largest global gradient norm; 0: no clipping
  std::int64_t threads = 0;  // of torch on each rank; 0: cores / ranks, at least 1
};

/// A run with every choice made and checked, the same on all ranks.
struct FitRun : RunShape {
  Model model;
  Data data;
  FitOptions options;
  std::vector<std::int64_t> ends;  // [stage]: the first layer behind it
  std::set<StageId> recompute;     // stages that run forward again before backward
  Program program;
  Program validation;  // forwards alone
  std::optional<CanonicalReduction> canonical;

  /// The samples of a micro-batch of a group.
  [[nodiscard]] SampleRange samples(std::int64_t step, GroupId group, MicroBatchId micro_batch) const;
  /// The stage, to be made with make_module_stage().
  [[nodiscard]] ModuleStageSpec stage(StageId id) const;
  /// How stages are used: copied where several ranks hold one.
  [[nodiscard]] ModuleUse use(StageId id) const;
  /// The rank whose values of a stage count where several hold it: that of replica 0 in group 0.
  [[nodiscard]] RankId owner(StageId id) const;
  /// The ranks that exchange messages, initial values among them, ascending.
  [[nodiscard]] std::vector<RankPair> talking_pairs() const;
};

/// Generates or takes the schedule, checks it, lowers it and proves that its program cannot get stuck. Calls no
/// factory. Throws ConfigError for a shape that does not fit, names that do not exist, asynchronous schedules, and
/// stages to recompute that there are not;
/// ScheduleError where check() finds a violation.
[[nodiscard]] FitRun prepare_fit(Model model, Data data, FitOptions options);

/// What a step did, the same on every rank.
struct FitStep {
  std::int64_t step = 0;  // from 1
  double loss = 0;        // mean over what the loss counted
  double gradient_norm = 0;
  double learning_rate = 0;
};

/// Holds the stages of one rank and trains them. One thread; run and transport are borrowed. All ranks make theirs and
/// call train_step() together.
class RankFit {
 public:
  /// `transport` connects all ranks: threads (transport/threads/thread_transport.h) or processes
  /// (transport/gloo/gloo_transport.h). Makes the rank's stages, makes their copies equal and finds the shapes of
  /// messages. Throws ConfigError where a module cannot be trained so; see ModuleStage.
  RankFit(const FitRun& run, RankId rank, Transport& transport);

  /// `step` counts from 0. Throws Error where the loss is not finite or nothing was counted.
  FitStep train_step(std::int64_t step);
  /// The same with an update of the caller's own: `update` is given the norm of all gradients and may change the
  /// gradients and the parameters of stages(). FitOptions' optimizer, learning rate and clipping count for nothing
  /// then.
  using Update = std::function<void(double gradient_norm)>;
  FitStep train_step(std::int64_t step, const Update& update);
  /// The loss on the step's samples; forwards alone, without graphs.
  double validation_loss(std::int64_t step);

  [[nodiscard]] const std::map<StageId, std::unique_ptr<ModuleStage>>& stages() const { return stages_; }
  /// The instruction under way, for error messages; empty between steps.
  [[nodiscard]] std::string current() const { return executor_->current(); }

 private:
  void load_targets(std::int64_t step);
  StepResult run(const Program& program, std::int64_t step, const Update& update);
  MicroBatch load(std::int64_t step, StageId stage, MicroBatchId micro_batch) const;

  const FitRun& run_;
  GroupWorker place_;
  Transport& transport_;
  std::map<StageId, std::unique_ptr<ModuleStage>> stages_;
  std::unique_ptr<Optimizer> optimizer_;  // made by the first step that uses it
  std::unique_ptr<Executor> executor_;
  std::map<MicroBatchId, at::Tensor> targets_;  // of the step under way, where the last stage is here
  double loss_scale_ = 1;                       // 1 / count of the step
};

/// Parameters and buffers by name, `3.weight`: global layer index and the module's own name.
using Parameters = std::map<std::string, at::Tensor>;

/// Trains all steps of the run, every rank a thread of this process. `on_step` is called after each step on the
/// caller's thread. Returns the parameters, which no one else refers to.
/// Throws what failed first: ConfigError for a module that cannot be trained so (see ModuleStage), Error for a loss
/// that is not finite, what the data function or `on_step` throws.
Parameters fit(const FitRun& run, const std::function<void(const FitStep&)>& on_step = {});

}  // namespace chimera
