#pragma once
// A training run made concrete: every choice resolved and checked before anything is started.

#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "data/samples.h"
#include "model_config/partition.h"
#include "passes/stream.h"
#include "runtime/block_sums.h"
#include "schedule/program.h"
#include "schedule/rank_layout.h"
#include "train/options.h"

namespace chimera {

/// Mini-batches of the validation split that one validation looks at, at most.
inline constexpr std::int64_t kValidationBatches = 4;

struct Job {
  TrainOptions options;
  ModelConfig model;
  std::vector<StageLayers> partition;  // [stage]
  Schedule schedule;                   // of one data-parallel group
  RankLayout ranks;
  Program training;                         // of one step; none where it is asynchronous
  std::map<std::int64_t, Stream> runs;      // asynchronous: runs without a flush, by their steps
  Program validation;                       // forwards alone; empty where there is no validation
  std::vector<std::int64_t> data_position;  // [micro-batch]: which run of its group's samples it takes
  std::vector<std::string> parameters;      // names of the model's, ascending
  std::optional<CanonicalReduction> canonical;
  std::shared_ptr<Corpus> corpus;  // shared with every rank thread
  std::optional<Samples> training_samples;
  std::optional<Samples> validation_samples;

  [[nodiscard]] std::int64_t num_ranks() const { return ranks.num_ranks(); }
  /// The workers of a group that hold each stage and, of a tied model, those that own its matrix.
  [[nodiscard]] std::vector<std::vector<WorkerId>> worker_groups() const {
    return gradient_groups(schedule.placement, model.tied);
  }
  /// The ranks of all groups that do.
  [[nodiscard]] std::vector<std::vector<WorkerId>> rank_groups() const { return ranks.ranks_of(worker_groups()); }
  /// Samples of one of the schedule's micro-batches: a part of --micro-batch-size after backward halving.
  [[nodiscard]] std::int64_t micro_batch_size() const;
  /// Micro-batches of one step, over all groups.
  [[nodiscard]] std::int64_t micro_batches() const { return schedule.micro_batches * ranks.data_parallel; }
  /// Samples of one step, over all micro-batches.
  [[nodiscard]] std::int64_t mini_batch() const { return micro_batch_size() * micro_batches(); }
  /// Of a stage's weights in a step.
  [[nodiscard]] std::int64_t updates() const {
    return schedule.updates ? schedule.micro_batches / schedule.updates->micro_batches : 1;
  }
  /// The steps that an asynchronous run does without a flush around step `step`: from the first on, so many.
  struct Run {
    std::int64_t first = 0;
    std::int64_t steps = 0;
  };
  [[nodiscard]] Run run_of(std::int64_t step) const;
  /// Which run of the step's samples a micro-batch takes: groups one after the other, then as data_position says.
  [[nodiscard]] std::int64_t position(GroupId group, MicroBatchId micro_batch) const {
    return group.value() * schedule.micro_batches + data_position[micro_batch.index()];
  }
};

/// Resolves names, generates and checks the schedule, lowers it and proves the programs free of deadlock, opens the
/// data, and makes sure that the metrics file can be written. Runs no tensor op. Throws ConfigError, one line, for
/// anything that does not fit.
[[nodiscard]] Job prepare_job(const TrainOptions& options);

/// Where each micro-batch's samples stand among those of its group: samples are dealt out by replica, then by ascending
/// id.
[[nodiscard]] std::vector<std::int64_t> data_positions(const Schedule& schedule);

}  // namespace chimera
