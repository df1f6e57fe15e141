#pragma once

#include <ATen/core/Tensor.h>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/shard.h"
#include "core/file_descriptor.h"
#include "engine/optimizer.h"
#include "model/parameter_group.h"
#include "telemetry/metrics.h"
#include "train/setup/job.h"
#include "transport/transport.h"

// What one rank writes of a checkpoint, and the copy of it that is written while training goes on.

// Asking the run in this process for a checkpoint that it would not save yet.

// When a save that failed is tried again.

// Saving checkpoints while training goes on: each rank copies its part and writes it on a thread of its own; when all
// ranks have, rank 0 commits the checkpoint. Ranks agree by a few numbers that travel with the sums of every step, so
// that no step waits for a disk.

namespace chimera {

/// The tensors that a rank writes. Each of the model is written once: the ranks that hold a stage share its parameters
/// by size, as a sharded optimizer does (engine/sharded_optimizer.h), so that each has the state of those it writes.
class CheckpointPart {
 public:
  /// `trained`: what the rank holds; `state`: what its optimizers keep. Their tensors are those of the run, and are
  /// read by copy().
  CheckpointPart(const Job& job, RankId rank, const std::map<ParameterGroupId, ParameterGroup*>& trained,
                 const std::vector<OptimizerTensor>& state);

  /// Copies all of it into memory of its own, which stays for the next copy.
  void copy();
  /// Writes what was copied into an unfinished checkpoint. `progress` is called now and then.
  [[nodiscard]] std::vector<FileRecord> write(Disk& disk, const std::string& unfinished,
                                              const std::function<void()>& progress) const;

 private:
  struct Piece {
    TensorEntry entry;
    at::Tensor source;  // not what it refers to now: weight versions lie in turn in other memory
    at::Tensor copy;    // on the CPU; undefined before the first copy
  };
  static void add(std::vector<Piece>& pieces, std::string name, const at::Tensor& source);

  int rank_;
  int ranks_;
  std::vector<Piece> weights_;
  std::vector<Piece> state_;
};

/// A checkpoint is saved after the step under way, or as soon as the one that is being saved has been. It is enough
/// that one rank is asked. May be called by a signal handler.
void request_save() noexcept;

/// How often that was called.
[[nodiscard]] std::uint64_t save_requests() noexcept;

/// After a failed save the next try comes kFirstPause later, after each further one twice as late, up to kLongestPause.
class SaveRetries {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::milliseconds kFirstPause{250};
  static constexpr std::chrono::milliseconds kLongestPause{60'000};

  void note_failure(Clock::time_point now);
  void note_success() { *this = {}; }
  /// Whether the last save failed, and its pause is over.
  [[nodiscard]] bool is_due(Clock::time_point now) const { return next_ && now >= *next_; }

 private:
  std::chrono::milliseconds pause_ = kFirstPause;
  std::optional<Clock::time_point> next_;
};

/// Saves the checkpoints of one rank's run, by Job::options.checkpoint. Used by the rank's thread; job, transport and
/// disk are borrowed. A save that fails is told on messages(), and tried again (SaveRetries) with what weights are
/// then. There is never more than one under way: one that is due meanwhile begins when it is done.
class Checkpointer {
 public:
  /// Makes the folder, on rank 0, and removes what a run that was killed left in it. Throws ConfigError where the
  /// folder cannot be made, or another run holds it.
  Checkpointer(const Job& job, RankId rank, Transport& transport,
               const std::map<ParameterGroupId, ParameterGroup*>& trained, const std::vector<OptimizerTensor>& state,
               Disk& disk = real_disk());
  Checkpointer(const Checkpointer&) = delete;
  Checkpointer& operator=(const Checkpointer&) = delete;

  /// What the next step is to sum over all ranks, in place.
  [[nodiscard]] std::span<double> sums();
  /// To be called after each step, with what its sums() have become. Returns whether a checkpoint is to be saved now:
  /// then save(). The same on every rank.
  [[nodiscard]] bool is_due(std::int64_t step);
  /// To be called after is_due(): whether the run is to end with this step, as some rank was asked to (stop_signals.h).
  /// The same on every rank. An asynchronous schedule goes on to its next flush.
  [[nodiscard]] bool stops_after(std::int64_t step) const { return stopping_ && may_save_after(step); }
  /// Copies this rank's part as it is after that step, and begins to write it.
  void save(const StepMetrics& metrics);
  /// Waits for the save under way, then saves what the last step left unless it was saved. Returns whether the
  /// newest checkpoint is that of the last step. All ranks call it.
  [[nodiscard]] bool finish(const StepMetrics& last);

  /// Numbers that all ranks must have in common: the newest checkpoint, whether one is due, whether the run is to end.
  static constexpr std::size_t kNumPlans = 3;
  [[nodiscard]] std::array<double, kNumPlans> plans() const;
  /// After ranks were lost: gives up the save under way, once nothing more is written for it here.
  void drop();
  /// To be called on all ranks after drop(), or after construction on those that were not there: with the plans() of
  /// one of the others. A checkpoint that was given up is due again.
  void go_on(std::span<const double> plans);

 private:
  enum class Phase : std::uint8_t { Idle, Writing, Committing };
  enum class Outcome : std::uint8_t { None, Done, Failed };
  /// The numbers that travel.
  enum Sum : std::uint8_t { kWanted, kWritten, kFailed, kCommitted, kStop, kNumSums };

  void start(std::function<void()> task);
  void work(const std::stop_token& stopped);
  void agree();
  void advance();
  void write_part();
  void commit_parts();
  [[nodiscard]] bool may_save_after(std::int64_t step) const;

  const Job& job_;
  RankId rank_;
  Transport& transport_;
  Disk& disk_;
  CheckpointPart part_;
  FileDescriptor lock_;  // of the folder, on rank 0
  Phase phase_ = Phase::Idle;
  bool wanted_ = false;              // a save is due
  bool stopping_ = false;            // the run is to end
  bool failed_ = false;              // on any rank: the one under way
  bool is_dropped_ = false;          // the last save was given up
  std::uint64_t seen_requests_ = 0;  // of request_save()
  std::int64_t saving_ = 0;          // the step that is being saved
  std::int64_t saved_ = 0;           // the newest one committed
  StepMetrics saved_metrics_;        // of the step that is being saved
  std::chrono::steady_clock::time_point last_save_ = std::chrono::steady_clock::now();
  SaveRetries retries_;  // on rank 0
  std::array<double, kNumSums> sums_{};
  std::mutex mutex_;
  std::condition_variable_any begun_;
  std::function<void()> task_;                    // for the thread to take; empty: none
  std::atomic<Outcome> outcome_ = Outcome::None;  // of the task that was begun last
  std::jthread thread_;                           // of saves. Last: it ends before what it uses
};

}  // namespace chimera
