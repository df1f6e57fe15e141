#pragma once
// A training run made concrete: every choice resolved and checked before anything is started.

#include <memory>
#include <optional>
#include <vector>

#include "data/samples.h"
#include "model/partition.h"
#include "schedule/program.h"
#include "train/options.h"

namespace chimera {

/// Mini-batches of the validation split that one validation looks at, at most.
inline constexpr std::int64_t kValidationBatches = 4;

struct Job {
  TrainOptions options;
  ModelConfig model;
  std::vector<StageLayers> partition;  // [stage]
  Schedule schedule;
  Program training;
  Program validation;                       // forwards alone; empty where there is no validation
  std::vector<std::int64_t> data_position;  // [micro-batch]: which run of the step's samples it takes
  std::shared_ptr<Corpus> corpus;           // shared with every rank thread
  std::optional<Samples> training_samples;
  std::optional<Samples> validation_samples;

  [[nodiscard]] std::int64_t num_workers() const { return static_cast<std::int64_t>(schedule.workers.size()); }
  /// Samples of one of the schedule's micro-batches: a part of --micro-batch-size after backward halving.
  [[nodiscard]] std::int64_t micro_batch_size() const;
  /// Samples of one step, over all micro-batches.
  [[nodiscard]] std::int64_t mini_batch() const { return micro_batch_size() * schedule.micro_batches; }
};

/// Resolves names, generates and checks the schedule, lowers it and proves the programs free of deadlock, opens the
/// data, and makes sure that the metrics file can be written. Runs no tensor op. Throws ConfigError, one line, for
/// anything that does not fit.
[[nodiscard]] Job prepare_job(const TrainOptions& options);

/// Where each micro-batch's samples stand among the step's: samples are dealt out by replica, then by ascending id.
[[nodiscard]] std::vector<std::int64_t> data_positions(const Schedule& schedule);

}  // namespace chimera
