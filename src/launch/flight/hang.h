#pragma once

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

// When a job hangs, and because of whom: decisions on what the launcher sees, with the time handed in.

// Finds ranks that hang where they are threads of this process, as launch() does where they are processes.

namespace chimera {

/// Measures for how long no rank has made progress. Time counts only while the watcher itself ran, so that a job
/// stopped as a whole and continued (Ctrl-Z, fg), or a machine that slept, is no hang. While a rank computes, only a
/// kWorkFactor-th of it counts, so that an op or an initialisation may take as long as it needs: ranks that hang wait,
/// and waiting takes no processor time. (A rank that computes for ever is found later.) So does time in which a rank
/// waits for a disk.
class HangWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  /// What a look at the ranks sees.
  struct Look {
    std::vector<std::uint64_t> counts;  ///< how often each rank has noted progress
    bool in_steps = false;              ///< whether all ranks are in their steps
    std::vector<Duration> work;         ///< processor time that each process has taken so far; none: it says nothing
    std::int64_t step = 0;              ///< in steps: that of the rank furthest behind; 0: not known
    bool waits_for_disk = false;        ///< whether a process is in an uninterruptible sleep
    bool stopped = false;               ///< whether a signal has stopped a process
  };

  /// A job hangs once no rank has made progress for `beyond` (more than zero) longer than the longest such pause in
  /// its steps so far, hence beyond the longest op. Until all ranks have done the first step that is seen, and so every
  /// kind of op, it is given `at_start`; zero: kStartUpFactor * beyond. A process that a signal has stopped is not slow
  /// to start: no more than `beyond` is given then.
  explicit HangWatch(Duration beyond, Duration at_start = {})
      : beyond_(beyond), at_start_(at_start > Duration::zero() ? at_start : kStartUpFactor * beyond) {}
  static constexpr int kStartUpFactor = 4;
  static constexpr int kWorkFactor = 20;

  /// How often to look. A look that comes later than twice that counts as no later.
  [[nodiscard]] Duration interval() const;
  /// Takes in one look. Returns whether the job hangs.
  [[nodiscard]] bool look(Clock::time_point now, const Look& look);
  /// For how long no rank has made progress, by the clock.
  [[nodiscard]] Duration pause() const { return pause_; }

 private:
  [[nodiscard]] bool works(const Look& look, Duration passed) const;

  Duration beyond_;
  Duration at_start_;
  Duration pause_{};    ///< since a rank last made progress
  Duration counted_{};  ///< what of it counts
  Duration longest_{};  ///< that has counted in the steps
  std::optional<Clock::time_point> last_look_;
  std::optional<std::int64_t> first_step_;  ///< that was seen
  Look last_;
};

/// What the page of these ranks shows; the processor time is left to the caller.
[[nodiscard]] HangWatch::Look look_at(const ProgressPage& page, int ranks);

/// What is known of a rank of a job that hangs.
struct StuckRank {
  int rank = 0;
  bool stopped = false;  ///< by a signal
  RankProgress progress;
};

/// The one to name: a stopped rank, or else one that does not wait for others, or else the one furthest behind in
/// steps; of equals the first. `ranks` (at least one) are those that have not ended.
[[nodiscard]] const StuckRank& find_stuck(std::span<const StuckRank> ranks);

/// One line: "rank 2 has made no progress for 31.0 s: stopped by a signal at 1B3 in step 4".
[[nodiscard]] std::string describe_hang(const StuckRank& stuck, HangWatch::Duration pause);

/// While it lives, a thread of its own looks at the progress of the rank threads. Where they hang (see HangWatch) it
/// names the rank that holds the others up on stderr, in one line, and ends the process with ExitCode::No: a thread
/// that hangs can be neither joined nor ended. A process that is stopped as a whole does not hang.
class ThreadWatch {
 public:
  /// `hang`, `hang_at_start` and `waits_idle` as in LaunchPlan; 0: nobody looks. Throws Error where the system refuses.
  ThreadWatch(int ranks, std::chrono::milliseconds hang, std::chrono::milliseconds hang_at_start, bool waits_idle);
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;
  ~ThreadWatch();

  /// While it lives, the thread that made it is this rank: its note_progress() counts.
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
  std::thread thread_;  // last: it uses all the others
};

}  // namespace chimera
