#pragma once

// Options of `chimera train` with their defaults. apps/train_command_line.h reads them from flags and files;
// prepare_job.h makes a Job of them.

#include <algorithm>

#include "checkpoint/checkpoint_folder.h"
#include "data/token_stream.h"
#include "engine/optimizer_options.h"
#include "generate/registry.h"
#include "model_config/config.h"
#include "model_config/partition.h"
#include "plan/machine.h"
#include "plan/stage_choice.h"
#include "safetensors/weight_files.h"
#include "schedule/place_all_reduces.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

namespace chimera {

/// Time between two saves or log lines, in steps or in seconds.
struct SaveInterval {
  std::int64_t steps = 0;
  double seconds = 0;  ///< At most one of the two fields is positive; both 0: not given
  friend bool operator==(const SaveInterval&, const SaveInterval&) = default;
};

/// Parses `100` (steps), `30s`, `10min` or `2h`. Throws ConfigError for anything else, and for 0.
[[nodiscard]] SaveInterval parse_save_interval(const std::string& flag, const std::string& text);

/// Parses a number of standard deviations, `5` or `5sigma`. Throws ConfigError unless it is positive.
[[nodiscard]] double parse_deviations(const std::string& flag, const std::string& text);

/// When a run saves checkpoints, and which it keeps.
struct CheckpointOptions {
  std::string folder;  ///< Empty: no saves
  SaveInterval every{.steps = 0, .seconds = 600};
  Retention keep;
  bool keeps_last = false;   ///< `keep.last` is given; otherwise a resumed run uses the value of the saved run
  bool keeps_every = false;  ///< the same for `keep.every`
};

/// From which checkpoint a run resumes.
struct ResumeOptions {
  /// Path of a checkpoint or of a folder of checkpoints; `auto` for the newest checkpoint in CheckpointOptions::folder,
  /// if any; empty or `none` to start at the first step
  std::string from;
  bool other_data = false;  ///< Allows other data or another mini-batch
  bool is_checked = false;  ///< The launcher has verified `from`, which is a single checkpoint
  bool is_auto = false;     ///< `from` was `auto`; open_checkpoints() replaces it by the checkpoint
  /// How many more samples and tokens the earlier steps of the run have used than as many steps of this job would use:
  /// not 0 if their mini-batch differs. open_checkpoints() sets them; a rank that replaces a lost one gets them from
  /// the launcher.
  std::int64_t sample_shift = 0;
  std::int64_t token_shift = 0;
};

/// Throws ConfigError if `sequence` exceeds the model's positions or sliding window, or if a micro-batch is too large
/// for the memory of any machine.
void require_fitting_batch(const ModelConfig& model, std::int64_t sequence, std::int64_t micro_batch_size);

/// Sets the parts of the learning rate that the user has not given: with --from the peak, and the warm-up, 5 % of the
/// steps, at least 4 (fewer in a run of a few steps) and at most 2,000. A resumed run has the values of the saved run
/// instead.
void choose_usual_rates(struct TrainOptions& options);

/// Throws ConfigError if this machine or its control group has less memory than `bytes`, which `what` (such as
/// "weights") needs.
void require_memory_for(const ModelConfig& model, const std::string& what, double bytes);

/// Most ranks of a job, over all hosts.
inline constexpr std::int64_t kMaxRanks = 65'536;

/// Value of an omitted token option.
inline constexpr std::int64_t kNoToken = -1;

/// Reaction to a loss or gradient that is not finite.
enum class NonFinite : std::uint8_t {
  Abort,
  Skip,      ///< Skips the update
  Rollback,  ///< Restarts from the newest checkpoint; skips the step if it fails again
};
template <>
inline constexpr auto kNames<NonFinite> = in_order<NonFinite>("abort", "skip", "rollback");

/// Reaction to the loss of a rank during training.
enum class Recover : std::uint8_t {
  Restart,  ///< Restarts from the newest checkpoint, up to `max_restarts` times
  Twin,     ///< A new process copies a replica's state; Reroute if none is ready in `spare_seconds`
  Reroute,  ///< The other holders of the lost rank's stages do its work; Restart if no replica is left
  None,
};
template <>
inline constexpr auto kNames<Recover> = in_order<Recover>("restart", "twin", "reroute", "none");

/// Reaction to replicas of a stage that differ.
enum class DifferentCopies : std::uint8_t {
  Abort,
  Repair,  ///< The majority's state overwrites the others; without a majority the run ends
};
template <>
inline constexpr auto kNames<DifferentCopies> = in_order<DifferentCopies>("abort", "repair");

/// Whether T ranks divide the tokens of hidden states between split layers (model/tensor_parallel.h).
enum class SequenceParallel : std::uint8_t {
  Auto,  ///< if T divides the sequence and each slice
  None,
};
template <>
inline constexpr auto kNames<SequenceParallel> = in_order<SequenceParallel>("auto", "none");

/// The flag that a plan's file (`chimera plan --output`) sets to the predicted seconds of a step
/// (PlannedTimes::step_seconds).
inline constexpr const char* kPlannedStepFlag = "--predicted_step_seconds";

/// Default of --hang-seconds. Including the polling interval, hangs are then detected within three seconds.
inline constexpr double kHangSeconds = 2.5;

/// The model that a run trains.
struct ModelOptions {
  std::string name = "gpt2-mini";  // Preset or TOML file; may be empty with `from`
  ModelOverrides overrides;        // Sizes that replace those of `name`
  std::string from;                // Hugging Face folder with initial weights; empty: new weights
  double dropout = 0;              // Probability in [0, 1)
};

/// Samples of a run: of training, of validation, and of text that the model continues meanwhile.
struct DataOptions {
  std::string training;    // Text, tokens, a folder or a mixture (data/corpus.h)
  std::string validation;  // As `training`, or a fraction of it; empty: 5 %, or the shards of a folder for it
  std::string tokenizer;   // Tokenizer of text (open_tokenizer); empty: bytes
  Documents documents = Documents::Pack;    // Whether samples attend across documents
  std::int64_t end_of_document = kNoToken;  // Document separator in formats that define none
  std::int64_t sequence = 128;              // Tokens per sample
  bool usual_sequence = false;              // `sequence` is not given: it is at most all positions of the model
  std::int64_t micro_batch_size = 4;        // Samples
  std::int64_t seed = 1;                    // Also of initial weights and dropout
  std::int64_t validate_every = 0;          // Steps; 0: never
  std::int64_t validate_batches = 4;        // Mini-batches per validation, at most
  std::int64_t sample_every = 0;            // Steps between continuations of `prompt`; 0: never
  std::string prompt;
};

/// To which differences in work and speed the order of a step adapts.
enum class Adapt : std::uint8_t {
  None,
  Documents,  ///< Lengths of documents, with Documents::Split
  All,        ///< Also the speeds of ranks
};
template <>
inline constexpr auto kNames<Adapt> = in_order<Adapt>("none", "documents", "all");

/// The schedule of the pipeline, and how it divides the model and the micro-batches.
struct ScheduleOptions {
  std::string name = kDefaultSchedule;    // "none": one process, no pipeline; empty: choose_schedule() chooses
  std::string file;                       // Source of `given`; never an output
  std::shared_ptr<const Schedule> given;  // Replaces `name` and `shape` if not null
  PipelineShape shape{.stages = 4, .micro_batches = 0};  // micro_batches 0: number of stages
  std::vector<std::int64_t> slice_lengths;               // Tokens of each slice; one number: equal; empty: equal times
  PartitionChoice partition = {PartitionRule::Auto};     // How layers are divided into stages
  std::function<PipelineShape(const Generator&)> shape_for;  // By the flags, except D and N; null: default_shape()
  std::shared_ptr<const MachineProfile> profile;  // Times for an Auto or Balanced partition; null: FLOPs and bytes
  double assumed_bytes = 0;  // Memory of a worker for choose_schedule(), if neither --memory nor the profile has it
  AllReducePlacement sync = AllReducePlacement::EagerOpt;  // When all-reduces of gradients start
  Adapt adapt = Adapt::Documents;
  Pairs pairs = Pairs::InOrder;  // Together: a forward and a backward run at once, on two threads of a rank
};

/// Ranks beside the workers of one pipeline.
struct ParallelOptions {
  std::int64_t data_parallel = 1;    // W: data-parallel groups
  std::int64_t tensor_parallel = 1;  // T: ranks that share the layers of a worker
  SequenceParallel sequence_parallel = SequenceParallel::Auto;
  ReplicaLayout replica_layout = ReplicaLayout::Near;  // Which ranks are neighbors
};

/// Where ranks run.
struct DeviceOptions {
  DeviceKind kind = DeviceKind::Cpu;  // Cuda: one GPU per process, or the first for all threads
  TransportKind transport = TransportKind::Processes;
  std::int64_t threads = 0;        // Intra-op threads per rank; 0: cores / local ranks, at least 1
  std::optional<int> gpu;          // GPU of this process if another launcher started it; empty: its rank's number
  std::optional<int> local_ranks;  // Ranks on this host if another launcher started them; empty: all
  std::string launcher;            // Other launcher that started this process, such as torchrun; empty: none
  bool is_supervised = false;      // A launcher supervises the ranks, even a single one
};

/// Types and order of computations.
struct NumericOptions {
  DataType dtype = DataType::Float32;
  bool force_bfloat16 = false;                         // Allows emulated bfloat16
  bool tf32 = false;                                   // TensorFloat32 for float32 products on GPUs
  bool cuda_graphs = false;                            // Records a step's GPU work, up to its sums, and replays it
  bool op_graphs = false;                              // Records each op's GPU work once and replays it
  ReductionOrder reduction = ReductionOrder::Natural;  // Order in which gradients are added
  std::int64_t reduction_blocks = 0;                   // Blocks of --reduction canonical; 0: default_reduction_blocks()
};

/// Steps and their updates.
struct UpdateOptions {
  std::int64_t steps = 100;
  OptimizerOptions optimizer = {.weight_decay = 0.01};
  LearningRate learning_rate;  // By step
  bool usual_peak = false;     // Its peak is not given: see choose_usual_rates()
  bool usual_warmup = false;   // Its warm-up is not given
  double clip = 1.0;           // Maximum global gradient norm; 0: no clipping
};

/// What saves memory.
struct MemoryOptions {
  StageChoice recompute;         // Stages with activation checkpointing
  StageChoice offload;           // Stages or blocks with activations in host memory
  double gib = 0;                // GiB per worker, for the rule `auto` of the two choices above; 0: not given
  bool ignores = false;          // No check: the run starts even if the predicted peak exceeds the memory
  bool shard_optimizer = false;  // Shards optimizer state over the replicas of a stage
};

/// Failures that a run detects, and how it continues.
struct RecoveryOptions {
  double hang_seconds = kHangSeconds;  // Time without progress, beyond the longest op; 0: no hang detection
  double rendezvous_seconds = 120;     // Rendezvous timeout if another launcher started the ranks
  bool verify_messages = false;        // Receivers verify checksums
  bool is_restart = false;             // Another launcher or the batch system has started the run before
  NonFinite non_finite = NonFinite::Abort;
  std::int64_t failed_step = 0;   // Step (from 1) that ended the previous attempt; 0: none
  std::int64_t max_restarts = 0;  // Most restarts from the newest checkpoint after failures
  Recover recover = Recover::Restart;
  std::int64_t max_recoveries = 100;  // Recover::Twin and Reroute: most recoveries per attempt
  double spare_seconds = 10;          // Recover::Twin: longest wait for a replacement
  double spike = 0;                   // Deviations above the expected loss that make a spike; 0: off
  std::int64_t spike_skip = 10;       // Mini-batches up to a spike that make no update
  DifferentCopies different_copies = DifferentCopies::Abort;

  /// Returns whether `step`, from 1, makes no update if its loss or gradients are not finite.
  [[nodiscard]] bool skips_non_finite(std::int64_t step) const {
    return non_finite == NonFinite::Skip || (non_finite == NonFinite::Rollback && step == failed_step);
  }
  /// Returns the steps between comparisons of replicas (train/recover/replica_check.h); the last step is always
  /// compared. A hash costs about 0.1 % of the computation. Repair compares after every step, before a bad replica
  /// corrupts a gradient sum.
  [[nodiscard]] std::int64_t steps_between_comparisons() const {
    return different_copies == DifferentCopies::Repair ? 1 : 10;
  }
  /// Returns whether the other ranks continue after the loss of a rank.
  [[nodiscard]] bool outlives_ranks() const { return recover == Recover::Twin || recover == Recover::Reroute; }
  /// Returns whether each rank checks before each update that its state is unchanged since the previous one. A rank
  /// that detects a change can be replaced.
  [[nodiscard]] bool watches_weights() const { return different_copies == DifferentCopies::Repair && outlives_ranks(); }
  /// Returns the hang limit until the first step is done, when disks may be slow. A shorter --hang-seconds also
  /// shortens this limit.
  [[nodiscard]] double hang_seconds_at_start() const {
    return hang_seconds < kHangSeconds ? 4 * hang_seconds : std::max(4 * hang_seconds, 120.0);
  }
};

/// Files that a run writes, other than checkpoints and the trained model.
struct OutputOptions {
  std::string metrics;        // JSON lines file; outputs from here to `report`, except flight_record, are off if empty
  std::string tensorboard;    // Folder of an event file
  std::string trace;          // Chrome trace of the last steps
  std::string op_times;       // JSON file of measured costs
  std::string tensor_memory;  // JSON file of peak tensor bytes per rank
  std::string flight_record;  // Folder of flight records; empty: in the checkpoint folder; "none": off
  std::string timeline;       // HTML page: a measured step and its simulation
  std::string report;         // HTML report of the run
  SaveInterval log_every;     // Interval of progress lines in a log; zero: see LogInterval
  bool overwrite = false;     // Outputs may replace files of other runs
  std::vector<std::string> files_read;  // Further inputs: --machine profile, --config file
  // Whether this process prints messages about files and checkpoints, and checks that outputs are not those of another
  // run. True in the launcher, and on rank 0 of another launcher
  bool reports = true;

  /// Returns whether any output needs op times.
  [[nodiscard]] bool observes() const {
    return !trace.empty() || !op_times.empty() || !timeline.empty() || !report.empty();
  }
};

/// Times by the plan or profile that a run was started with.
struct PlannedTimes {
  double step_seconds = 0;               // 0: none
  std::vector<std::vector<double>> ops;  // [stage][op kind]: seconds by the profile; empty: none
  std::string by;                        // Name, file and date of this profile
  // Input of prepare_job(), for the times above and the MFU
  std::string profile;       // File of the profile; empty: none, or GPUs
  bool is_planned = false;   // A plan gave the profile, which may then lack the peak of matrix products
  bool is_compared = false;  // This process needs the times: the launcher and rank 0
};

/// The Hugging Face folder that a run writes at its end.
struct FinalExportOptions {
  std::string folder;  // Empty: none
  std::string dtype;   // Element type, a word of config.json; empty: type of the weights
  std::uint64_t shard_bytes = kDefaultShardBytes;
};

/// All options of a run. The enumerations explain their values.
struct TrainOptions {
  ModelOptions model;
  DataOptions data;
  ScheduleOptions schedule;
  ParallelOptions parallel;
  DeviceOptions device;
  NumericOptions numbers;
  UpdateOptions updates;
  MemoryOptions memory;
  RecoveryOptions recovery;
  CheckpointOptions checkpoint;
  ResumeOptions resume;
  OutputOptions output;
  FinalExportOptions exported;
  PlannedTimes planned;

  /// Returns the folder of flight records; empty if there are none.
  [[nodiscard]] std::string flight_folder() const {
    if (!output.flight_record.empty()) return output.flight_record == "none" ? "" : output.flight_record;
    return checkpoint.folder.empty() ? "" : checkpoint.folder + "/flight";
  }
};

}  // namespace chimera
