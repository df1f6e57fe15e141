#pragma once

// Detects hung jobs. Each rank counts its progress notes, about one per instruction, in shared memory (ProgressPage in
// progress.h). The supervisor in the launcher reads the counts and the ranks' CPU time several times per second, and
// gives them to HangWatch. If no rank makes progress for longer than the longest pause so far plus a limit, the job
// hangs: the launcher names the stuck rank, and ends or recovers the job. ThreadHangWatch does the same for ranks that
// are threads.

#include <chrono>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "launch/flight/progress.h"

namespace chimera {

/// Detects hangs from observations, which the owner passes to update() once per interval(). If an observation comes
/// late, because the job (Ctrl-Z) or the machine was suspended, the additional time does not count. While a rank
/// computes or waits for a disk, only 1/kWorkFactor of the time counts, because a hung rank normally uses no CPU time.
class HangWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  /// State of the ranks at one time.
  struct Observation {
    std::vector<std::uint64_t> counts = {};  ///< [observed rank]: number of its progress notes so far
    bool in_steps = false;                   ///< Whether all ranks are in Phase::Steps
    std::vector<Duration> work = {};         ///< [process]: CPU time so far; empty if waiting ranks use CPU time, too
    std::int64_t step = 0;                   ///< Lowest step of all ranks; 0: unknown
    bool is_waiting_for_disk = false;        ///< Whether a rank is in an uninterruptible sleep
    bool is_stopped = false;                 ///< Whether a signal has stopped a rank
  };

  /// A job hangs if no rank makes progress for `beyond` (more than zero) longer than the longest pause in its steps so
  /// far. Until all ranks have completed the first observed step, the limit is `at_start` (zero: kStartUpFactor *
  /// beyond), or `beyond` if a signal has stopped a rank.
  ///
  /// `records_steps`: the ranks record a CUDA graph of a step (--cuda-graphs), and later steps have no progress notes.
  /// Then the longest pause counts as at least kRecordedFactor times the time of the first two observed steps.
  explicit HangWatch(Duration beyond, Duration at_start = {}, bool records_steps = false)
      : beyond_(beyond),
        at_start_(at_start > Duration::zero() ? at_start : kStartUpFactor * beyond),
        steps_to_time_(records_steps ? 2 : 0) {}
  static constexpr int kStartUpFactor = 4;
  static constexpr int kWorkFactor = 20;
  static constexpr int kRecordedFactor = 2;

  /// Returns the time between two calls of update(). A longer gap counts as at most twice this time.
  [[nodiscard]] Duration interval() const;
  /// Takes the observation `now`, made at `time`. Returns whether the job hangs.
  [[nodiscard]] bool update(Clock::time_point time, const Observation& now);
  /// Returns the time since the last progress, not reduced by kWorkFactor.
  [[nodiscard]] Duration pause() const { return pause_; }

 private:
  [[nodiscard]] bool is_working(const Observation& now, Duration passed) const;
  void time_step(const Observation& now, Duration passed);

  Duration beyond_;
  Duration at_start_;
  int steps_to_time_;       ///< with records_steps: how many of the first two steps are still to be timed
  Duration step_{};         ///< time in the current one of these steps
  Duration first_steps_{};  ///< time of the completed ones
  Duration pause_{};
  Duration counted_{};  ///< Part of pause_ that counts
  Duration longest_{};  ///< Longest counted pause in the steps
  std::optional<Clock::time_point> last_update_;
  std::optional<std::int64_t> first_step_;
  Observation last_;
};

/// Reads an observation of these ranks from the page; the caller adds CPU times and process states.
[[nodiscard]] HangWatch::Observation observe(const ProgressPage& page, std::span<const int> ranks);

/// State of a rank in a hung job.
struct StuckRank {
  int rank = 0;
  bool is_stopped = false;  ///< by a signal
  RankProgress progress = {};
};

/// Returns the rank that probably causes a hang: a stopped rank; else a rank that does not wait for others; else the
/// rank furthest behind. `ranks` are the ranks that have not ended, at least one.
[[nodiscard]] const StuckRank& find_stuck(std::span<const StuckRank> ranks);

/// Returns "rank 2 has made no progress for 31.0 s: stopped by a signal at 1B3 in step 4". Also names a GPU's memory
/// that was full.
[[nodiscard]] std::string describe_hang(const StuckRank& stuck, HangWatch::Duration pause);

/// Detects hangs of ranks that are threads of this process, on a thread of its own. If they hang, names the stuck rank
/// on stderr and ends the process with ExitCode::No, because a hung thread cannot be ended.
class ThreadHangWatch {
 public:
  /// `hang` is the limit beyond the longest pause (0: no detection), and `hang_at_start` the limit until all ranks have
  /// completed a step (0: kStartUpFactor * hang). `waits_idle`: waiting ranks use no CPU time. `records_steps`: later
  /// steps have no progress notes (HangWatch).
  ThreadHangWatch(int ranks, std::chrono::milliseconds hang, std::chrono::milliseconds hang_at_start, bool waits_idle,
                  bool records_steps);
  ThreadHangWatch& operator=(ThreadHangWatch&&) = delete;

  /// Scope of a rank's thread: its calls of note_progress() count in this watch.
  class Rank {
   public:
    Rank(ThreadHangWatch& watch, int rank);
    Rank& operator=(Rank&&) = delete;
    ~Rank();
  };

 private:
  void run(const std::stop_token& stopped);
  [[noreturn]] void end_hang() const;

  ProgressPage page_;
  int ranks_;
  HangWatch watch_;
  bool waits_idle_;
  std::jthread thread_;  // last member, because it uses the others
};

}  // namespace chimera
