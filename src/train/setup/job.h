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
#include "hugging_face/export_plan.h"
#include "hugging_face/model_folder.h"
#include "model_config/partition.h"
#include "passes/unroll.h"
#include "plan/worker_memory.h"
#include "runtime/canonical_sums.h"
#include "safetensors/element_type.h"
#include "schedule/program.h"
#include "train/setup/left_out_steps.h"
#include "train/setup/options.h"

namespace chimera {

struct TrainingPrompt;
struct JobCheckpoints;

/// Shape of a run, before anything is prepared.
struct JobShape : RunShape {
  TrainOptions options;
  ModelConfig model;
  std::shared_ptr<const ModelFolder> from;  // Initial weights; null: from the seed
  // [k + 1]: first token of each slice, and the tokens of a sequence; empty: micro-batches run whole
  std::vector<std::int64_t> slice_bounds;

  /// Consecutive steps of an asynchronous run without a flush.
  struct Run {
    std::int64_t first = 0;
    std::int64_t steps = 0;
  };
  [[nodiscard]] Run run_of(std::int64_t step) const;
  [[nodiscard]] std::int64_t local_ranks() const {
    return std::min<std::int64_t>(options.local_ranks.value_or(std::numeric_limits<int>::max()), num_ranks());
  }
};

/// A run with all data that its ranks need.
struct Job : JobShape {
  std::vector<StageLayers> partition;   // [stage]
  ChosenStages stages;                  // Stages of --recompute and --offload
  Program training;                     // One step; empty if asynchronous
  std::map<std::int64_t, Stream> runs;  // Asynchronous: [steps between flushes]
  Program validation;                   // Forward passes; empty without validation
  std::vector<std::string> parameters;  // Ascending names
  std::optional<CanonicalReduction> canonical;
  std::shared_ptr<Corpus> corpus;  // Shared by all rank threads
  std::string tokenizer;           // Argument of open_tokenizer; empty: not known
  std::optional<Samples> training_samples;
  std::optional<Samples> validation_samples;
  std::shared_ptr<const TrainingPrompt> prompt;       // Null without --sample-every
  std::shared_ptr<const JobCheckpoints> checkpoints;  // Null without saves and --resume
  std::vector<LeftOutSteps> left_out;
  std::int64_t first_step = 0;  // First step, from 0; earlier steps are in the checkpoint
  double peak_flops = 0;        // Peak FLOP/s of large matrix products, all ranks together; 0: not known
};

/// Resolves names, generates and checks the schedule, and validates the options. Reads only the model's file or folder
/// headers. Throws ConfigError for invalid options.
[[nodiscard]] JobShape job_shape(const TrainOptions& options);

/// Returns the job with a partitioned model and its chosen stages, which is sufficient for a dry run.
[[nodiscard]] Job cut_job(const JobShape& shape);

/// Sets the job's programs. Throws ScheduleError if one could deadlock.
void lower_programs(Job& job);

/// Partitions the model, lowers the schedule, verifies that programs cannot deadlock, opens data and checkpoints, and
/// checks outputs. Runs no tensor op. Throws ConfigError if anything does not fit.
[[nodiscard]] Job prepare_job(const JobShape& shape);
[[nodiscard]] inline Job prepare_job(const TrainOptions& options) { return prepare_job(job_shape(options)); }

/// Opens --data and --validation and creates the samples. Throws ConfigError if data cannot be read or do not fit the
/// model.
void open_data(Job& job);

/// Throws ConfigError for options that asynchronous schedules do not support, and for more than INT32_MAX
/// micro-batches.
void require_asynchronous(const JobShape& job);

/// Throws ConfigError if --on-different-copies repair cannot work: no replicas, an asynchronous schedule, sharded
/// optimizer state or GPUs.
void require_repairable(const JobShape& job);

/// Returns the element type of the tensors of --export.
[[nodiscard]] ElementType export_type(const TrainOptions& options);

/// Returns the files of --export.
[[nodiscard]] ExportPlan planned_export(const JobShape& job);

/// Throws ConfigError if the folder of --export cannot be created, or if transformers has no class for the model.
void require_exportable(const JobShape& job);

/// Throws ConfigError if an output file cannot be written, is an input of the run, is from another run, or is written
/// by two flags.
void require_outputs(const Job& job);

/// Writes an output, with a number in its name if another run has written it since the start. Throws ConfigError.
void write_at_end(const Job& job, const char* flag, const std::string& path, const std::string& text);

/// Returns the maximum number of open files of a rank, a process of thread ranks, or the launcher.
[[nodiscard]] std::int64_t descriptors_needed(const Job& job);

}  // namespace chimera
