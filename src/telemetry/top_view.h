#pragma once

// The live view of `chimera top`. The metrics file says what the run has done; the progress page of its ranks, found
// through /proc, says what they do now. A rank that waits less than the others is the straggler that they wait for.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/flight/progress.h"
#include "telemetry/run_history.h"

namespace chimera {

struct LiveRank {
  std::int64_t step = 0;  ///< From 1; 0 outside of steps
  std::string doing;      ///< `1B3`, `start-up`
  double waiting = 0;     ///< Share of time spent waiting for other ranks
};

/// A process that writes a metrics file, and the progress page of its job.
class LiveRun {
 public:
  /// Finds the process that has this file open for writing, if visible to this user.
  [[nodiscard]] static std::optional<LiveRun> find(const std::string& metrics);

  [[nodiscard]] pid_t process() const { return process_; }
  /// Samples all ranks about 1000 times per second. Empty if the progress page is not accessible.
  [[nodiscard]] std::vector<LiveRank> watch(std::chrono::milliseconds time) const;

 private:
  LiveRun(pid_t process, std::optional<ProgressPage> page) : process_(process), page_(std::move(page)) {}

  pid_t process_;
  std::optional<ProgressPage> page_;
};

/// Returns ranks that wait less than half as much as the median rank, which waits at least a fifth of the time.
[[nodiscard]] std::vector<std::size_t> stragglers(const std::vector<LiveRank>& ranks);

struct TopView {
  RunHistory run;
  std::optional<pid_t> process = {};  ///< Local process that writes the metrics
  std::vector<LiveRank> ranks = {};   ///< Empty if not accessible
  double seconds_since_last = 0;      ///< since the last write to the metrics file
};

/// If the run is on this machine, samples its ranks for `watched`. Throws ConfigError.
[[nodiscard]] TopView observe_run(const std::string& path, std::chrono::milliseconds watched);

[[nodiscard]] std::string to_text(const TopView& view, std::size_t columns);
/// Returns JSON (docs/metrics.md).
[[nodiscard]] std::string to_json(const TopView& view);

}  // namespace chimera
