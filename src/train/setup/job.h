#pragma once

// A Job has everything that the ranks of `chimera train` need. It is made of TrainOptions in three phases
// (prepare_job.h), each of which sets more fields. resolve_job() resolves names and generates the schedule.
// partition_job() divides the model into stages, which is sufficient for the forecast of --dry-run (dry_run.h).
// prepare_job() makes the programs and opens data and checkpoints. After that, the job is constant, and all ranks of a
// process share it.

#include <algorithm>
#include <limits>
#include <numeric>
#include <utility>

#include "data/samples.h"
#include "engine/rerouted_run.h"
#include "engine/run_shape.h"
#include "engine/tensor_ranks.h"
#include "hugging_face/model_folder.h"
#include "model_config/partition.h"
#include "passes/unroll.h"
#include "plan/worker_memory.h"
#include "runtime/worker_context.h"
#include "schedule/program.h"
#include "train/setup/options.h"

namespace chimera {

/// Name of the file, in the --checkpoint folder, with the schedule that a run has chosen (--adapt all). A run that
/// resumes begins with this schedule.
inline constexpr const char* kOrderName = "order.json";

struct TrainingPrompt;
struct JobCheckpoints;

/// First and last of a range of steps, from 1, that a run leaves out: it computes them, but does not update weights,
/// because their mini-batches led to a loss spike (--spike).
using LeftOutSteps = std::pair<std::int64_t, std::int64_t>;

/// Returns whether one of the ranges contains `step`, from 1.
[[nodiscard]] inline bool leaves_out(const std::vector<LeftOutSteps>& ranges, std::int64_t step) {
  return std::ranges::any_of(ranges,
                             [step](const LeftOutSteps& each) { return each.first <= step && step <= each.second; });
}

/// Consecutive steps of an asynchronous run without a flush, which would wait until no micro-batch is in flight.
struct FlushInterval {
  std::int64_t first = 0;  // From 0
  std::int64_t steps = 0;
};

/// The programs of a job: instructions of all workers (schedule/program.h).
struct JobPrograms {
  Program training;                                        // One step; empty if asynchronous
  std::map<std::int64_t, ContinuousProgram> runs;          // Asynchronous: by number of steps between two flushes
  Program validation;                                      // Forward passes; empty without validation
  Pairs pairs = Pairs::InOrder;                            // How `training` runs pairs
  AllReducePlacement sync = AllReducePlacement::EagerOpt;  // Where `training` starts its sums
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

/// What the ranks of a job compute: model, schedule and programs, and how ranks divide them.
struct JobShape {
  // Set by resolve_job()
  ModelConfig model;
  // Schedule, ranks and samples. With tensor parallelism, several ranks do the work of one of these ranks: one in each
  // lane (engine/tensor_ranks.h)
  RunShape run;
  std::int64_t tensor_parallel = 1;  // T
  bool cuts_tokens = false;        // Ranks that share layers divide the tokens between these layers (SequenceParallel)
  bool has_second_shards = false;  // Two ranks update each shard of the optimizer, so that one may be lost
  std::optional<int> ranks_of_host;  // Ranks on this host; empty: all
  // [slices + 1]: first token of each slice, and the tokens of a sequence; empty: micro-batches run whole
  std::vector<std::int64_t> slice_bounds;

  // Set by partition_job()
  std::vector<StageLayers> partition;           // [stage]
  ChosenStages stages;                          // Stages of --recompute and --offload
  std::optional<CanonicalReduction> canonical;  // Order of gradient sums with --reduction canonical

  // Set by prepare_job()
  JobPrograms programs;
  std::vector<std::string> parameters;  // Names of all parameters, ascending

  // Set by rerouted_job()
  std::vector<RankId> launched_ranks;  // [rank]: its number among the launched ranks; empty: all ranks run
  RankGroups launched_groups;          // Of the launched ranks: RunShape::rank_groups()
  std::int64_t lost_ranks = 0;         // Number of launched ranks that do not run
  std::vector<double> factors;         // [launched rank]: 2 if its ops take twice as long; empty: equally fast
  std::vector<LinkDelay> delays;       // Slow links between launched ranks

  /// Returns all ranks of the job, over all lanes.
  [[nodiscard]] TensorRanks ranks() const {
    return {run.num_ranks(), tensor_parallel, head_groups(model, tensor_parallel)};
  }
  [[nodiscard]] std::int64_t num_ranks() const { return ranks().count(); }
  /// Returns the number of launched ranks, whether they run or not.
  [[nodiscard]] std::size_t launched_count() const { return static_cast<std::size_t>(num_ranks() + lost_ranks); }
  /// Returns the groups of ranks that add tensors: first those that sum gradients, then those that sum inside ops
  /// (tensor parallelism).
  [[nodiscard]] RankGroups rank_groups() const { return ranks().groups(run.rank_groups()); }
  /// Returns the rank's number among the launched ranks, for messages.
  [[nodiscard]] RankId launched_rank(RankId rank) const {
    return launched_ranks.empty() ? rank : launched_ranks[rank.index()];
  }
  /// Returns [group][shard]: the running ranks that update the shard. The first sends it, and writes it to checkpoints.
  [[nodiscard]] std::vector<RankGroups> shards() const;
  /// Returns the number of ranks on this host.
  [[nodiscard]] std::int64_t local_ranks() const {
    return std::min<std::int64_t>(ranks_of_host.value_or(std::numeric_limits<int>::max()), num_ranks());
  }
};

/// The second-best schedule of a run without --schedule, compared with the chosen one.
struct RunnerUp {
  std::string schedule;
  double more_time = 0;    // Predicted, as a fraction of the chosen schedule's step; may be negative
  double more_memory = 0;  // The same of the largest peak of a rank
};

/// A training run, completely specified.
struct Job : JobShape {
  TrainOptions options;                     // Set by resolve_job(); open_checkpoints() completes them
  std::shared_ptr<const ModelFolder> from;  // Set by resolve_job(): initial weights; null: from the seed
  std::optional<RunnerUp> runner_up;        // Set by choose_schedule() if it chose among several

  // Set by prepare_job()
  JobData data;
  std::shared_ptr<const JobCheckpoints> checkpoints;  // Null without saves, --export and --resume
  std::shared_ptr<const Schedule> order;              // Schedule in the file kOrderName of the resumed run; null: none
  std::vector<LeftOutSteps> left_out;                 // Steps without an update, because they led to a loss spike
  std::int64_t first_step = 0;                        // First step, from 0; earlier steps are in the checkpoint
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
  /// Returns whether the run continues its own outputs, or may replace those of other runs.
  [[nodiscard]] bool replaces_outputs() const {
    return options.output.overwrite || options.recovery.is_restart || first_step > 0;
  }
};

}  // namespace chimera
