#pragma once

// A Job has everything that the ranks of `chimera train` need. It is made of TrainOptions in three phases
// (prepare_job.h), each of which sets more fields. resolve_job() resolves names and generates the schedule.
// partition_job() divides the model into stages, which is sufficient for the forecast of --dry-run (dry_run.h).
// prepare_job() makes the programs and opens data and checkpoints. After that, the job is constant, and all ranks of a
// process share it.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "data/samples.h"
#include "engine/run_shape.h"
#include "engine/tensor_ranks.h"
#include "hugging_face/model_folder.h"
#include "model_config/partition.h"
#include "passes/unroll.h"
#include "plan/worker_memory.h"
#include "runtime/canonical_sums.h"
#include "schedule/program.h"
#include "train/setup/left_out_steps.h"
#include "train/setup/options.h"

namespace chimera {

struct TrainingPrompt;
struct JobCheckpoints;

/// Consecutive steps of an asynchronous run without a flush, which would wait until no micro-batch is in flight.
struct FlushInterval {
  std::int64_t first = 0;  // From 0
  std::int64_t steps = 0;
};

/// The programs of a job: instructions of all workers (schedule/program.h).
struct JobPrograms {
  Program training;                                // One step; empty if asynchronous
  std::map<std::int64_t, ContinuousProgram> runs;  // Asynchronous: by number of steps between two flushes
  Program validation;                              // Forward passes; empty without validation
};

/// Data of the training run; ranks that are threads share it.
struct JobData {
  std::shared_ptr<Corpus> corpus;
  std::string tokenizer;                               // Argument of open_tokenizer; empty: not known
  std::map<std::string, std::string> tokenizer_texts;  // Its files when the run began, which may be replaced later
  std::optional<Samples> training;
  std::optional<Samples> validation;
  std::shared_ptr<const TrainingPrompt> prompt;  // Null without --sample-every
};

/// A training run, completely specified.
struct Job {
  // Set by resolve_job()
  TrainOptions options;
  ModelConfig model;
  std::shared_ptr<const ModelFolder> from;  // Initial weights; null: from the seed
  // Schedule, ranks and samples. With tensor parallelism, several ranks do the work of one of these ranks: one in each
  // lane (engine/tensor_ranks.h)
  RunShape run;
  // [slices + 1]: first token of each slice, and the tokens of a sequence; empty: micro-batches run whole
  std::vector<std::int64_t> slice_bounds;

  // Set by partition_job()
  std::vector<StageLayers> partition;           // [stage]
  ChosenStages stages;                          // Stages of --recompute and --offload
  std::optional<CanonicalReduction> canonical;  // Order of gradient sums with --reduction canonical

  // Set by prepare_job()
  JobPrograms programs;
  std::vector<std::string> parameters;  // Names of all parameters, ascending
  JobData data;
  std::shared_ptr<const JobCheckpoints> checkpoints;  // Null without saves, --export and --resume
  std::vector<LeftOutSteps> left_out;                 // Steps without an update, because they led to a loss spike
  std::int64_t first_step = 0;                        // First step, from 0; earlier steps are in the checkpoint
  // Samples and tokens of earlier steps, beyond those of as many steps of this job: not 0 if their mini-batch differs
  std::int64_t sample_shift = 0;
  std::int64_t token_shift = 0;

  // Set by rerouted_job()
  std::vector<RankId> launched_ranks;  // [rank]: its number among the launched ranks; empty: all ranks run
  RankGroups launched_groups;          // Of the launched ranks: RunShape::rank_groups()
  std::int64_t lost_ranks = 0;         // Number of launched ranks that do not run

  double peak_flops = 0;  // Peak FLOP/s of large matrix products, all ranks together; 0: not known

  /// Returns the steps of an asynchronous run between the flushes around `step` (from 0). The pipeline is flushed
  /// before validations, samples and saves.
  [[nodiscard]] FlushInterval flush_interval(std::int64_t step) const {
    std::int64_t pause = std::gcd(options.data.validate_every, options.data.sample_every);  // gcd(a, 0) = a
    if (!options.checkpoint.folder.empty()) pause = std::gcd(pause, options.checkpoint.every.steps);
    const std::int64_t longest = pause > 0 ? pause : options.updates.steps;
    const std::int64_t first = step / longest * longest;
    return {first, std::min(longest, options.updates.steps - first)};
  }
  /// Returns all ranks of the job, over all lanes.
  [[nodiscard]] TensorRanks ranks() const {
    return {run.num_ranks(), options.parallel.tensor_parallel, head_groups(model, options.parallel.tensor_parallel)};
  }
  [[nodiscard]] std::int64_t num_ranks() const { return ranks().count(); }
  [[nodiscard]] std::size_t launched_count() const { return static_cast<std::size_t>(num_ranks() + lost_ranks); }
  /// Returns whether the ranks that share layers divide the tokens between these layers (SequenceParallel).
  [[nodiscard]] bool cuts_tokens() const {
    const std::int64_t t = options.parallel.tensor_parallel;
    const auto is_cut = [t](std::int64_t bound) { return bound % t == 0; };
    return t > 1 && options.parallel.sequence_parallel == SequenceParallel::Auto && is_cut(options.data.sequence) &&
           std::ranges::all_of(slice_bounds, is_cut);
  }
  /// Returns the groups of ranks that add something: gradients, then the sums of split layers.
  [[nodiscard]] RankGroups rank_groups() const { return ranks().groups(run.rank_groups()); }
  /// Returns the rank's number among the launched ranks, for messages.
  [[nodiscard]] RankId launched_rank(RankId rank) const {
    return launched_ranks.empty() ? rank : launched_ranks[rank.index()];
  }
  /// Returns whether two ranks update each shard of the optimizer.
  [[nodiscard]] bool has_second_shards() const {
    return options.memory.shard_optimizer && options.recovery.outlives_ranks();
  }
  /// Returns [group][shard]: the running ranks that update the shard. The first sends it, and writes it to checkpoints.
  [[nodiscard]] std::vector<RankGroups> shards() const;
  /// Returns the number of ranks on this host.
  [[nodiscard]] std::int64_t local_ranks() const {
    return std::min<std::int64_t>(options.device.local_ranks.value_or(std::numeric_limits<int>::max()), num_ranks());
  }
};

}  // namespace chimera
