#pragma once

// Detects hung jobs. Ranks note their progress on a shared page (progress.h); the launcher observes the page and the
// ranks' CPU time several times per second. If nothing changes for longer than the longest pause seen so far, plus a
// limit, the job hangs: the launcher names the stuck rank, and ends or recovers the job. ThreadWatch does the same for
// ranks that are threads.

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "launch/flight/progress.h"

namespace chimera {

/// Detects hangs from periodic observations. Gaps between observations, such as a suspended job (Ctrl-Z) or machine, do
/// not count. While a rank computes or waits for a disk, only 1/kWorkFactor of the time counts, because a hung rank
/// normally uses no CPU time.
class HangWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  struct Observation {
    std::vector<std::uint64_t> counts = {};  ///< [rank]: progress notes
    bool in_steps = false;
    std::vector<Duration> work = {};   ///< CPU time by process; empty if waiting ranks use CPU time, too
    std::int64_t step = 0;             ///< Lowest of all ranks; 0: unknown
    bool is_waiting_for_disk = false;  ///< in an uninterruptible sleep
    bool is_stopped = false;           ///< by a signal
  };

  /// A job hangs if no rank makes progress for `beyond` (more than zero) longer than the longest pause in its steps so
  /// far. Until all ranks have completed the first observed step, the limit is `at_start` (zero: kStartUpFactor *
  /// beyond). During start-up it is `beyond` if a signal has stopped a process.
  ///
  /// If `records_steps`, steps after the second run without progress notes (--cuda-graphs). Then the limit is
  /// at least `beyond` longer than kRecordedFactor times the first two observed steps, which are as slow as recording
  /// and repeating a step.
  explicit HangWatch(Duration beyond, Duration at_start = {}, bool records_steps = false)
      : beyond_(beyond),
        at_start_(at_start > Duration::zero() ? at_start : kStartUpFactor * beyond),
        steps_to_time_(records_steps ? 2 : 0) {}
  static constexpr int kStartUpFactor = 4;
  static constexpr int kWorkFactor = 20;
  static constexpr int kRecordedFactor = 2;

  /// A gap counts as at most twice the interval.
  [[nodiscard]] Duration interval() const;
  /// Returns whether the job hangs.
  [[nodiscard]] bool update(Clock::time_point time, const Observation& now);
  /// Returns the time since the last progress, not reduced by kWorkFactor.
  [[nodiscard]] Duration pause() const { return pause_; }

 private:
  [[nodiscard]] bool is_working(const Observation& now, Duration passed) const;
  void time_step(const Observation& now, Duration passed);

  Duration beyond_;
  Duration at_start_;
  int steps_to_time_;       ///< first steps not completed yet
  Duration step_{};         ///< time in the current one
  Duration first_steps_{};  ///< time of the completed ones
  Duration pause_{};
  Duration counted_{};  ///< Part of pause_ that counts
  Duration longest_{};  ///< Longest counted pause in the steps
  std::optional<Clock::time_point> last_update_;
  std::optional<std::int64_t> first_step_;
  Observation last_;
};

/// Reads an observation from the page; the caller adds CPU times and process states.
[[nodiscard]] HangWatch::Observation observe(const ProgressPage& page, int ranks);

struct StuckRank {
  int rank = 0;
  bool is_stopped = false;  ///< by a signal
  RankProgress progress = {};
};

/// Returns a stopped rank, else a rank that does not wait for others, else the rank furthest behind. `ranks` (at least
/// one) have not ended.
[[nodiscard]] const StuckRank& find_stuck(std::span<const StuckRank> ranks);

/// Returns "rank 2 has made no progress for 31.0 s: stopped by a signal at 1B3 in step 4". Also names a GPU's memory
/// that was full.
[[nodiscard]] std::string describe_hang(const StuckRank& stuck, HangWatch::Duration pause);

/// Detects hangs of rank threads, on its own thread. Names the stuck rank on stderr and ends the process with
/// ExitCode::No, because a hung thread cannot be ended.
class ThreadWatch {
 public:
  /// Parameters as in LaunchPlan; `hang` 0 disables detection.
  ThreadWatch(int ranks, std::chrono::milliseconds hang, std::chrono::milliseconds hang_at_start, bool waits_idle,
              bool records_steps);
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;
  ~ThreadWatch();

  /// Sends the current thread's note_progress() to this watch.
  class Rank {
   public:
    Rank(ThreadWatch& watch, int rank);
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank();
  };

 private:
  void run();
  [[noreturn]] void end_hang() const;

  ProgressPage page_;
  int ranks_;
  HangWatch watch_;
  bool waits_idle_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;  // last member, because it uses the others
};

}  // namespace chimera
