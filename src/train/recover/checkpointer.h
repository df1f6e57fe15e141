#pragma once

// Saves checkpoints of a running job without stopping it for the disk. Between two steps, each rank copies its tensors;
// a separate thread then writes the copy while training continues. When all ranks have written, rank 0 commits the
// checkpoint (checkpoint/commit.h). The ranks coordinate with SaveVotes (runtime/step_hooks.h), a few numbers that are
// added to the all-reduce of losses and norms at the end of each step, so that all ranks change their state after the
// same step:
//
//   votes: a rank wants a save -> all ranks copy and write -> votes: all have written -> rank 0 commits -> vote: done
//
// The Trainer (train/loop/trainer.h) passes votes() to each step. After the step it asks is_due() whether to save, and
// stops_after() whether to end the run.

#include <atomic>

#include "checkpoint/disk.h"
#include "checkpoint/shard.h"
#include "core/file_descriptor.h"
#include "engine/optimizer.h"
#include "model/parameter_group.h"
#include "runtime/helper_thread.h"
#include "runtime/step_hooks.h"
#include "telemetry/metrics.h"
#include "train/setup/job.h"
#include "transport/transport.h"

namespace chimera {

/// Tensors that one rank writes. The ranks of a stage divide its parameters like a sharded optimizer
/// (engine/sharded_optimizer.h), so each rank has the optimizer state of its part. If several ranks share layers
/// (tensor parallelism), the first of them writes whole tensors, so that a checkpoint does not depend on their number.
class CheckpointPart {
 public:
  /// `trained` are the parameters of this rank, by group (a stage, or the tied matrix), and `state` its optimizer
  /// state. `tensor` are the ranks that share its layers; null: none. Borrows the tensors.
  CheckpointPart(const JobShape& job, RankId rank, const std::map<ParameterGroupId, ParameterGroup*>& trained,
                 const std::vector<OptimizerTensor>& state, TensorGroup* tensor);

  /// Copies the tensors to memory of this object, which later calls reuse. Collective over the ranks that share layers.
  /// Calls `progress` after each tensor.
  void copy(const std::function<void()>& progress);
  /// Writes the copies into the folder `unfinished` of the unfinished checkpoint, and returns the entries of its files
  /// for the manifest. Throws CheckpointError if the disk fails or a tensor is not finite.
  [[nodiscard]] std::vector<FileEntry> write(Disk& disk, const std::string& unfinished) const;

 private:
  struct Piece {
    TensorEntry entry;
    at::Tensor source;  // Its storage changes with the weight version
    std::optional<TensorCut> cut;
    at::Tensor copy;  // On the CPU; undefined before the first copy
  };
  void add(std::vector<Piece>& pieces, std::string name, const std::string& parameter, const at::Tensor& source);
  [[nodiscard]] bool is_written() const { return tensor_ == nullptr || tensor_->place().rank == 0; }

  int rank_;
  int ranks_;
  TensorGroup* tensor_;
  std::map<std::string, std::vector<std::int64_t>> shapes_;  // Of whole parameters; empty without `tensor`
  std::vector<Piece> weights_;
  std::vector<Piece> state_;
};

/// When to retry a failed save: exponential backoff.
class SaveRetries {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFirstPause{250};
  static constexpr std::chrono::milliseconds kLongestPause{60'000};

  /// The next retry is due kFirstPause after a failure, and twice as late after each further one, up to kLongestPause.
  void note_failure(Clock::time_point now);
  void note_success() { *this = {}; }
  /// Returns whether a save has failed and its retry is due.
  [[nodiscard]] bool is_due(Clock::time_point now) const { return next_ && now >= *next_; }

 private:
  std::chrono::milliseconds pause_ = kFirstPause;
  std::optional<Clock::time_point> next_;
};

/// State of a run's saves, equal on all ranks.
struct SavePlans {
  std::int64_t saved = 0;    ///< Step (from 1) of the newest checkpoint; 0: none
  bool is_due = false;       ///< A save is due and has not started
  bool is_stopping = false;  ///< A rank received a stop request: the run saves and ends
};

/// Saves the checkpoints of one rank. Call it from the rank's thread. Borrows job and transport. A failed save is
/// reported on messages() (standard error), and retried with the weights at the time of the retry. A save starts only
/// after the previous one has ended.
class Checkpointer {
 public:
  /// On rank 0, creates and locks the --checkpoint folder, and removes unfinished checkpoints of a killed run. Throws
  /// ConfigError if this fails. Arguments are as in CheckpointPart.
  Checkpointer(const Job& job, RankId rank, Transport& transport,
               const std::map<ParameterGroupId, ParameterGroup*>& trained, const std::vector<OptimizerTensor>& state,
               TensorGroup* tensor);
  Checkpointer& operator=(Checkpointer&&) = delete;

  /// Returns this rank's votes for the next step. The step replaces them by their sums over all ranks.
  [[nodiscard]] SaveVotes& votes();
  /// Call it after each step, when votes() has the sums. Returns whether to call save(); the same on every rank.
  [[nodiscard]] bool is_due(std::int64_t step);
  /// Call it after is_due(). Returns whether the run ends after this step, because any rank received a stop request
  /// (stop_signals.h). A run of an asynchronous schedule continues until no micro-batch is in flight (its next flush).
  [[nodiscard]] bool stops_after(std::int64_t step) const { return plans_.is_stopping && may_save_after(step); }
  /// Starts to save the state after this step: copies the tensors, and starts the thread that writes them.
  void save(const StepMetrics& metrics);
  /// Call it after the last step, on all ranks. Waits for the current save, then saves the last step unless it is
  /// saved, and retries for about 16 s. Returns whether the newest checkpoint has the last step.
  [[nodiscard]] bool finish(const StepMetrics& last);
  /// Waits until the current save is complete or has failed. Collective.
  void complete();

  [[nodiscard]] const SavePlans& plans() const { return plans_; }
  /// Gives up the current save after a rank was lost (--recover): waits until this rank's thread has ended its task,
  /// and marks the save as due again.
  void drop();
  /// Continues after a recovery. Call it on surviving ranks after drop(), and on replacements after construction, with
  /// the plans() of a surviving rank.
  void resume(const SavePlans& plans);

 private:
  enum class Phase : std::uint8_t { Idle, Writing, Committing };
  enum class Outcome : std::uint8_t { None, Done, Failed };
  struct Save {
    Phase phase = Phase::Idle;
    StepMetrics metrics = {};  // Metrics of the saved step
    bool has_failed = false;   // On any rank
    bool is_dropped = false;
  };

  /// Starts a task on a thread of its own, and reports its error on messages(). The previous task must have ended.
  void start(std::function<void()> task);
  void advance();
  void write_part();
  void commit_parts();
  [[nodiscard]] nlohmann::ordered_json progress() const;
  [[nodiscard]] bool may_save_after(std::int64_t step) const;
  [[nodiscard]] bool has_ended() const { return outcome_ != Outcome::None; }

  const Job& job_;
  RankId rank_;
  Transport& transport_;
  Disk& disk_ = real_disk();
  CheckpointPart part_;
  FileDescriptor lock_;  // Rank 0 only
  SavePlans plans_;
  Save current_;
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
  SaveRetries retries_;  // Rank 0 only
  SaveVotes votes_;
  std::atomic<Outcome> outcome_ = Outcome::None;  // Of the last task; None before its end
  std::optional<HelperThread> thread_;            // Last member: ends its task before the members that it uses
};

}  // namespace chimera
