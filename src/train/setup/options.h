#pragma once

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/checkpoint_folder.h"
#include "core/choices.h"
#include "data/token_stream.h"
#include "engine/optimizer_options.h"
#include "generate/registry.h"
#include "hugging_face/export_plan.h"
#include "model_config/config.h"
#include "model_config/partition.h"
#include "plan/recompute_choice.h"
#include "schedule/place_all_reduces.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

// When a run saves checkpoints, and which of them it keeps: --checkpoint and the flags beside it.

// What a model and this machine have room for, found out before anything is allocated.

// What a training run is asked for: the flags of `chimera train`, with their defaults.

namespace chimera {

/// How often checkpoints are saved: after so many steps, or after so much time.
struct SaveInterval {
  std::int64_t steps = 0;  ///< 0: by time
  double seconds = 0;      ///< 0: by steps
  friend bool operator==(const SaveInterval&, const SaveInterval&) = default;
};

/// `100` (steps), `30s`, `10min` or `2h`. Throws ConfigError for anything else, and for 0.
[[nodiscard]] SaveInterval parse_save_interval(const std::string& flag, const std::string& text);

/// Deviations: `5` or `5sigma`. Throws ConfigError for anything else, and for what is not above 0.
[[nodiscard]] double parse_deviations(const std::string& flag, const std::string& text);

struct CheckpointOptions {
  std::string folder;  ///< empty: none are saved
  SaveInterval every{.steps = 0, .seconds = 600};
  Retention keep;
};

/// Where a run begins.
struct ResumeOptions {
  std::string from;  ///< `auto`: the newest checkpoint of CheckpointOptions::folder, if there is one; a folder of
                     ///< checkpoints, or one of them; empty or `none`: with the first step
  bool other_data = false;  ///< goes on with other data or another mini-batch too
  bool is_checked = false;  ///< by the launcher: `from` is one checkpoint, whose bytes are good
};

/// Throws ConfigError where the sequence (--sequence) is longer than the model's positions or its sliding window, or
/// where no machine holds the hidden states of a micro-batch of so many sequences (--micro-batch-size).
void require_fitting_batch(const ModelConfig& model, std::int64_t sequence, std::int64_t micro_batch_size);

/// Throws ConfigError where this machine, or its control group, has less memory than `bytes`, which `what` of the model
/// (such as "weights") needs in any case.
void require_memory_for(const ModelConfig& model, const std::string& what, double bytes);

/// Stands for a token that is not given.
inline constexpr std::int64_t kNoToken = -1;

/// What becomes of a step whose loss or gradient is not finite.
enum class NonFinite : std::uint8_t {
  Abort,     ///< it ends the run
  Skip,      ///< its update is not made
  Rollback,  ///< the run is started again from its newest checkpoint; where the step is not finite again, it is skipped
};
template <>
inline constexpr auto kNames<NonFinite> = std::to_array<Named<NonFinite>>({{NonFinite::Abort, "abort"},
                                                                           {NonFinite::Skip, "skip"},
                                                                           {NonFinite::Rollback, "rollback"}});

/// What becomes of a job that loses a rank in its steps.
enum class Recover : std::uint8_t {
  Restart,  ///< it is started again from its newest checkpoint, as often as `max_restarts` says
  Twin,     ///< a new rank takes over from those that hold the same stages; where there are none: the same
  None,     ///< it ends
};
template <>
inline constexpr auto kNames<Recover> =
    std::to_array<Named<Recover>>({{Recover::Restart, "restart"}, {Recover::Twin, "twin"}, {Recover::None, "none"}});

/// What becomes of copies of a stage that differ.
enum class DifferentCopies : std::uint8_t {
  Abort,   ///< they end the run
  Repair,  ///< those that are unlike most take over what most have; where there is no majority, they end the run
};
template <>
inline constexpr auto kNames<DifferentCopies> =
    std::to_array<Named<DifferentCopies>>({{DifferentCopies::Abort, "abort"}, {DifferentCopies::Repair, "repair"}});

/// Found within three seconds, with the look that comes after it.
inline constexpr double kHangSeconds = 2.5;

struct TrainOptions {
  std::string model = "gpt2-mini";          // a preset, or a TOML file; with `from` perhaps empty
  ModelOverrides overrides;                 // single fields of it
  std::string from;                         // a Hugging Face folder to start from; empty: new weights
  std::string data;                         // text, tokens, a folder or a mixture (data/corpus.h)
  std::string validation;                   // the same, or a share of the data; empty: as data/corpus.h has it
  std::string tokenizer;                    // of text (open_tokenizer); empty: bytes
  Documents documents = Documents::Pack;    // whether samples see across the ends of documents
  std::int64_t end_of_document = kNoToken;  // the token that separates documents, where formats do not say
  std::string schedule = kDefaultSchedule;  // or "none": unpipelined, one stage in one process
  std::string schedule_file;                // where `given` was read; the run does not write to it
  std::shared_ptr<const Schedule> given;    // in place of `schedule` and `shape`; none: these
  PipelineShape shape{4, 0, 2};             // micro_batches 0: as many as stages
  PartitionChoice partition;
  std::int64_t data_parallel = 1;                      // W: groups that run the schedule side by side
  ReplicaLayout replica_layout = ReplicaLayout::Near;  // of the ranks
  ReductionOrder reduction = ReductionOrder::Natural;
  std::int64_t reduction_blocks = 0;  // Q, of canonical; 0: default_reduction_blocks
  AllReducePlacement sync = AllReducePlacement::EagerOpt;
  Pairs pairs = Pairs::InOrder;  // together: on two threads of a rank
  bool shard_optimizer = false;  // optimizer state once over the copies of a stage
  std::int64_t micro_batch_size = 4;
  std::int64_t sequence = 128;  // tokens of a sample
  std::int64_t steps = 100;
  std::int64_t seed = 1;
  DataType dtype = DataType::Float32;
  bool force_bfloat16 = false;  // even where the processor has to emulate it
  bool tf32 = false;            // on a GPU, products of float32 round their factors to TensorFloat32
  bool cuda_graphs = false;     // on a GPU, a step up to its sums is recorded once and then repeated
  OptimizerOptions optimizer = {.weight_decay = 0.01};
  LearningRate learning_rate;
  double clip = 1.0;   // largest global gradient norm; 0: no clipping
  double dropout = 0;  // the probability that an element becomes 0, in [0, 1)
  TransportKind transport = TransportKind::Processes;
  DeviceKind device = DeviceKind::Cpu;  // of GPUs, one for each process, or the first for all threads
  std::optional<int> gpu;               // of this process, where another launcher has placed it; none: that of its rank
  std::optional<int> local_ranks;       // of this host, where another launcher has placed them; none: all ranks
  RecomputeChoice recompute;            // activation checkpointing
  double memory = 0;                    // GiB that a worker has, for recompute "auto"
  double hang_seconds = kHangSeconds;   // without progress, beyond the longest op, after which ranks hang; 0: never
  double meeting_seconds = 120;         // that ranks have to find each other where another launcher started them
  std::int64_t threads = 0;             // intra-op threads of a rank; 0: cores / ranks of this host, at least 1
  std::int64_t validate_every = 0;      // steps; 0: never
  std::int64_t validate_batches = 4;    // mini-batches of the validation split that one validation looks at, at most
  std::int64_t sample_every = 0;        // steps between continuations of `prompt`; 0: none
  std::string prompt;                   // text that the model continues; empty: none
  std::string metrics;                  // JSON lines file; empty: none
  std::string tensorboard;              // folder for an event file; empty: none
  std::string trace;                    // Chrome trace of the last steps; empty: none
  std::string op_times;                 // JSON file of measured costs; empty: none
  std::string tensor_memory;            // JSON file of the most bytes of tensors on each rank; empty: nobody counts
  std::string flight_record;            // folder for what each rank did last; empty: that of checkpoints; "none"
  std::string timeline;                 // HTML page of a measured step beside its simulation; empty: none
  std::string report;                   // HTML page about the whole run; empty: none

  std::vector<std::string> files_read;  // beside those named above: the profile of --machine, the file of --config

  NonFinite non_finite = NonFinite::Abort;
  std::int64_t failed_step = 0;   // that ended the start before this one; 0: none
  std::int64_t max_restarts = 0;  // of a job whose ranks failed, from its newest checkpoint
  Recover recover = Recover::Restart;
  std::int64_t max_recoveries = 100;  // by twins, in one start of the job
  double spike = 0;                   // deviations above the mean at which a loss is one; 0: none is
  std::int64_t spike_skip = 10;       // mini-batches up to a spike that make no update
  DifferentCopies different_copies = DifferentCopies::Abort;
  bool report_stragglers = false;  // whether the summary says which ranks compute more slowly than others
  bool verify_messages = false;    // whether receivers compare what arrives with checksums of what was sent
  CheckpointOptions checkpoint;
  ResumeOptions resume;

  std::string export_folder;  // made at the end, for transformers to load; empty: none
  std::string export_dtype;   // of its tensors, a word of config.json; empty: the type of the weights
  std::uint64_t export_shard_bytes = kDefaultShardBytes;  // that a file of it has at most

  /// Whether the update of a step, counted from 1, is left out where something is not finite.
  [[nodiscard]] bool skips_non_finite(std::int64_t step) const {
    return non_finite == NonFinite::Skip || (non_finite == NonFinite::Rollback && step == failed_step);
  }
  /// Steps after which the copies of every stage are compared (train/recover/copies.h), as they are after the last one.
  /// A hash takes about a thousandth of what computing takes. A copy is repaired before it spoils a sum of gradients.
  [[nodiscard]] std::int64_t steps_between_comparisons() const {
    return different_copies == DifferentCopies::Repair ? 1 : 10;
  }
  /// Whether each rank makes sure before each update that nothing has changed since the last one: one that finds a
  /// change can be replaced.
  [[nodiscard]] bool watches_weights() const {
    return different_copies == DifferentCopies::Repair && recover == Recover::Twin;
  }
  /// How long ranks may do nothing before their first step is done, where disks may be slow. Who wants hangs found
  /// sooner than by default wants that there too.
  [[nodiscard]] double hang_seconds_at_start() const {
    return hang_seconds < kHangSeconds ? 4 * hang_seconds : std::max(4 * hang_seconds, 120.0);
  }
  /// The folder of flight records; empty: none are kept.
  [[nodiscard]] std::string flight_folder() const {
    if (!flight_record.empty()) return flight_record == "none" ? "" : flight_record;
    return checkpoint.folder.empty() ? "" : checkpoint.folder + "/flight";
  }
  /// Whether something is written about when ops ran.
  [[nodiscard]] bool observes() const {
    return !trace.empty() || !op_times.empty() || !timeline.empty() || !report.empty();
  }
};

}  // namespace chimera
