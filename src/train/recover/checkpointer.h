#pragma once

// Checkpoints of a running job. Each rank copies its part of the state between two steps and writes the copy on a
// separate thread; when all parts are written, rank 0 commits them. No step waits for a disk: the ranks coordinate by
// SaveVotes, which travel in the sum of each step:
//
//   a rank wants a save -> all copy, then write -> all have written -> rank 0 commits -> all know the newest checkpoint
//
// The trainer asks after each step whether a save is due, or whether a stop request ends the run.

#include <ATen/core/Tensor.h>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

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
/// (engine/sharded_optimizer.h), so each rank has the optimizer state of its part. Of T ranks that share layers, the
/// first writes whole tensors, so that a checkpoint does not depend on T.
class CheckpointPart {
 public:
  /// Borrows the tensors of `trained` and `state`.
  CheckpointPart(const Job& job, RankId rank, const std::map<ParameterGroupId, ParameterGroup*>& trained,
                 const std::vector<OptimizerTensor>& state, TensorGroup* tensor);

  /// Copies to own memory, which later calls reuse. Collective over the ranks that share layers. Calls `progress` after
  /// each tensor.
  void copy(const std::function<void()>& progress);
  /// Calls `progress` repeatedly.
  [[nodiscard]] std::vector<FileEntry> write(Disk& disk, const std::string& unfinished,
                                             const std::function<void()>& progress) const;

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
  std::map<std::string, std::vector<std::int64_t>> shapes_;  // of whole parameters, with a group
  std::vector<Piece> weights_;
  std::vector<Piece> state_;
};

/// Exponential backoff of failed saves.
class SaveRetries {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFirstPause{250};
  static constexpr std::chrono::milliseconds kLongestPause{60'000};

  void note_failure(Clock::time_point now);
  void note_success() { *this = {}; }
  [[nodiscard]] bool is_due(Clock::time_point now) const { return next_ && now >= *next_; }

 private:
  std::chrono::milliseconds pause_ = kFirstPause;
  std::optional<Clock::time_point> next_;
};

/// Runs one task at a time on a thread of its own, and reports its error on messages().
class SaveThread {
 public:
  enum class Outcome : std::uint8_t { None, Done, Failed };

  /// The previous task must have ended. `failure` begins the message about an error.
  void start(std::function<void()> task, std::string failure);
  /// Returns the outcome of the last task; None before its end.
  [[nodiscard]] Outcome outcome() const { return outcome_; }
  void forget() { outcome_ = Outcome::None; }

 private:
  std::atomic<Outcome> outcome_ = Outcome::None;
  std::optional<HelperThread> thread_;  // Last member: ends its task before the members that it uses
};

/// Plans of a run's saves that all ranks share.
struct SavePlans {
  std::int64_t saved = 0;    ///< Step of the newest checkpoint
  bool is_due = false;       ///< A save is due
  bool is_stopping = false;  ///< The run saves and ends
};

/// Saves a rank's checkpoints, on the rank's thread. Borrows job, transport and disk. Reports a failed save on
/// messages() and retries it with the current weights. A due save waits for the previous one.
class Checkpointer {
 public:
  /// On rank 0, creates and locks the folder and removes remains of a killed run. Throws ConfigError if this fails.
  Checkpointer(const Job& job, RankId rank, Transport& transport,
               const std::map<ParameterGroupId, ParameterGroup*>& trained, const std::vector<OptimizerTensor>& state,
               TensorGroup* tensor = nullptr, Disk& disk = real_disk());
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  [[nodiscard]] SaveVotes& votes();
  /// Call after each step, with votes() summed. Returns whether to call save(); the same on every rank.
  [[nodiscard]] bool is_due(std::int64_t step);
  /// Call after is_due(). Returns whether a stop request (stop_signals.h) on any rank ends the run with this step. An
  /// asynchronous schedule continues to its next flush.
  [[nodiscard]] bool stops_after(std::int64_t step) const { return plans_.is_stopping && may_save_after(step); }
  void save(const StepMetrics& metrics);
  /// Waits for the current save, then saves the last step if needed, and retries for about 16 s. Returns whether the
  /// newest checkpoint has the last step. All ranks call it.
  [[nodiscard]] bool finish(const StepMetrics& last);

  [[nodiscard]] const SavePlans& plans() const { return plans_; }
  /// Drops the current save, once this rank has stopped writing.
  void drop();
  /// Call on survivors after drop() and on replacements after construction, with the plans() of a survivor. A dropped
  /// checkpoint is due again.
  void resume(const SavePlans& plans);

 private:
  enum class Phase : std::uint8_t { Idle, Writing, Committing };
  struct Save {
    Phase phase = Phase::Idle;
    StepMetrics metrics = {};  // Of the saved step
    bool has_failed = false;   // On any rank
    bool is_dropped = false;
  };

  void start(std::function<void()> task);
  void agree();
  void advance();
  void write_part();
  void commit_parts();
  [[nodiscard]] bool may_save_after(std::int64_t step) const;
  [[nodiscard]] bool has_ended() const { return thread_.outcome() != SaveThread::Outcome::None; }

  const Job& job_;
  RankId rank_;
  Transport& transport_;
  Disk& disk_;
  CheckpointPart part_;
  FileDescriptor lock_;  // Rank 0 only
  SavePlans plans_;
  Save current_;
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
  SaveRetries retries_;  // Rank 0 only
  SaveVotes votes_;
  SaveThread thread_;  // Last member: stops before the members it uses
};

}  // namespace chimera
