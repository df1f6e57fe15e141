#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "data/samples.h"
#include "engine/run_shape.h"
#include "hugging_face/model_folder.h"
#include "model_config/partition.h"
#include "passes/unroll.h"
#include "runtime/canonical_sums.h"
#include "schedule/program.h"
#include "train/loop/left_out_steps.h"
#include "train/setup/options.h"

// A training run made concrete: every choice resolved and checked before anything is started. First its shape, which
// is cheap, then what is prepared from it.

// The data of a run, opened.

// Training by a schedule that updates weights between its ops.

// The files that a run writes.

// How many files the processes of a job have open.

namespace chimera {

struct TrainingPrompt;
struct JobCheckpoints;

/// What a run is, before anything is prepared for it.
struct JobShape : RunShape {
  TrainOptions options;
  ModelConfig model;
  std::shared_ptr<const ModelFolder> from;  // where the first weights are; none: in the seed

  /// Steps that an asynchronous run does in a row without a flush; run_of() finds those around a step.
  struct Run {
    std::int64_t first = 0;
    std::int64_t steps = 0;
  };
  [[nodiscard]] Run run_of(std::int64_t step) const;
  /// How many ranks are on this host, of those that the run has.
  [[nodiscard]] std::int64_t local_ranks() const {
    return std::min<std::int64_t>(options.local_ranks.value_or(std::numeric_limits<int>::max()), num_ranks());
  }
};

/// A run with all that its ranks need.
struct Job : JobShape {
  std::vector<StageLayers> partition;   // [stage]
  Program training;                     // of one step; none where it is asynchronous
  std::map<std::int64_t, Stream> runs;  // asynchronous: runs without a flush, by their steps
  Program validation;                   // forwards alone; empty where there is no validation
  std::vector<std::string> parameters;  // names of the model's, ascending
  std::optional<CanonicalReduction> canonical;
  std::shared_ptr<Corpus> corpus;  // shared with every rank thread
  std::string tokenizer;           // that made the corpus, as open_tokenizer takes it; empty: not known
  std::optional<Samples> training_samples;
  std::optional<Samples> validation_samples;
  std::shared_ptr<const TrainingPrompt> prompt;       // null: no --sample-every
  std::shared_ptr<const JobCheckpoints> checkpoints;  // null: it neither saves any nor goes on from one
  std::vector<LeftOutSteps> left_out;                 // steps that make no update
  std::int64_t first_step = 0;                        // that it does, from 0: those before are in the checkpoint
  double peak_flops = 0;  // FLOP/s that all ranks' products of large matrices reach together; 0: not known
};

/// Resolves names, generates and checks the schedule, and holds the options to their limits: cheap, for those who ask
/// for counts of ranks, stages or samples. Reads nothing but a model's file, or the headers of its folder. Throws
/// ConfigError, one line, for what does not fit.
[[nodiscard]] JobShape job_shape(const TrainOptions& options);

/// The same with the model cut into stages: all that a dry run needs. Nothing is lowered or opened.
[[nodiscard]] Job cut_job(const JobShape& shape);

/// Cuts the model, lowers the schedule and proves the programs free of deadlock, opens the data, and makes sure that
/// all that the run writes can be written. Runs no tensor op. Throws ConfigError, one line, for anything that does not
/// fit.
[[nodiscard]] Job prepare_job(const JobShape& shape);
[[nodiscard]] inline Job prepare_job(const TrainOptions& options) { return prepare_job(job_shape(options)); }

/// Opens what --data and --validation name, and makes of it the samples of training and, where asked for, of
/// validation. Throws ConfigError, one line, for data that cannot be read or do not fit the model.
void open_data(Job& job);

/// Throws ConfigError for options that an asynchronous schedule gives no meaning to, and for more micro-batches than
/// can be numbered.
void require_asynchronous(const JobShape& job);

/// Makes sure, before anything is started, that each file can be written and is none of those that the run reads, nor
/// another one that it writes. Throws ConfigError.
void require_outputs(const TrainOptions& options);

/// Files that a process of the job has open at once, at most: each rank, or all of them as threads, or their launcher.
[[nodiscard]] std::int64_t descriptors_needed(const Job& job);

}  // namespace chimera
