#pragma once

// The live view of `chimera top`. It reads the finished steps from the metrics file of a run. What each rank does now
// is on the progress page (launch/flight/progress.h), shared memory that `chimera top` finds through /proc if the run
// is on this machine. Slow ranks (stragglers) are those that the run's flight records show (speed_report.h).

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/flight/progress.h"
#include "telemetry/run_history.h"

namespace chimera {

/// Current activity of a rank.
struct LiveRank {
  std::int64_t step = 0;  ///< From 1; 0 outside of steps
  std::string doing;      ///< Op (stage, kind, micro-batch) such as `1B3`, or another activity such as `start-up`
  double waiting = 0;     ///< Fraction of the samples of watch() in which it waited for other ranks
  pid_t process = 0;      ///< 0: unknown
  bool is_here = true;    ///< False if the process has ended, or runs on another host; `doing` then says which
};

/// A running job: the process that writes its metrics file, and its progress page.
class LiveRun {
 public:
  /// Finds the process that has this metrics file open for writing; nullopt if there is none, or this user may not see
  /// it.
  [[nodiscard]] static std::optional<LiveRun> find(const std::string& metrics);

  [[nodiscard]] pid_t process() const { return process_; }
  /// Returns the number of steps of the job; 0: unknown.
  [[nodiscard]] std::int64_t steps() const { return page_ ? page_->steps() : 0; }
  /// Samples all ranks about 1000 times per second for `time`, and blocks meanwhile. Returns [rank]; empty if the
  /// progress page is not accessible.
  [[nodiscard]] std::vector<LiveRank> watch(std::chrono::milliseconds time) const;

 private:
  LiveRun(pid_t process, std::optional<ProgressPage> page) : process_(process), page_(std::move(page)) {}

  pid_t process_;
  std::optional<ProgressPage> page_;
};

/// Content of the view.
struct TopView {
  RunHistory run;
  std::optional<pid_t> process = {};  ///< Local process that writes the metrics
  std::vector<LiveRank> ranks = {};   ///< Empty if not accessible
  double seconds_since_last = 0;      ///< since the last write to the metrics file
  std::int64_t live_steps = 0;        ///< LiveRun::steps()
  std::vector<int> stragglers = {};   ///< Slow ranks; empty unless the run is here and writes flight records
};

/// Reads the run at `path`, a metrics file or its folder. If the run is on this machine, also samples its ranks for
/// `watched`. Throws ConfigError if the metrics cannot be read.
[[nodiscard]] TopView observe_run(const std::string& path, std::chrono::milliseconds watched);

/// Returns the view as text, with lines of at most `columns` characters.
[[nodiscard]] std::string to_text(const TopView& view, std::size_t columns);
/// Returns JSON (docs/metrics.md).
[[nodiscard]] std::string to_json(const TopView& view);

}  // namespace chimera
