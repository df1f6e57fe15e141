#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launch/flight/progress.h"
#include "telemetry/run_history.h"

// What the ranks of a run do now, where they run on this machine: read from the page that they share with their
// launcher, which costs them nothing.

// What `chimera top` shows of a run.

namespace chimera {

/// A rank over a moment of watching.
struct LiveRank {
  std::int64_t step = 0;  ///< that it is in, from 1; 0 outside of steps
  std::string doing;      ///< `1B3`, `start-up`
  double waiting = 0;     ///< the share of the moments looked at in which it waited for other ranks
};

/// A process that writes a metrics file, and the ranks of its job.
class LiveRun {
 public:
  /// The run whose rank 0 has this file open, on this machine and for this user to see; none where there is no such
  /// process.
  [[nodiscard]] static std::optional<LiveRun> find(const std::string& metrics);

  [[nodiscard]] pid_t process() const { return process_; }
  /// Looks at all ranks for that long, a thousand times a second. Empty where the ranks share no page that can be seen.
  [[nodiscard]] std::vector<LiveRank> watch(std::chrono::milliseconds time) const;

 private:
  LiveRun(pid_t process, std::optional<ProgressPage> page) : process_(process), page_(std::move(page)) {}

  pid_t process_;
  std::optional<ProgressPage> page_;
};

/// The ranks that hold up the others: in a job whose other ranks wait a good part of the time, those that hardly wait.
/// Each of them waits less than half as much as the median rank, and that one at least a fifth of the time.
[[nodiscard]] std::vector<std::size_t> stragglers(const std::vector<LiveRank>& ranks);

/// A run at one moment.
struct TopView {
  RunHistory run;
  std::optional<pid_t> process = {};  ///< that writes the metrics, on this machine
  std::vector<LiveRank> ranks = {};   ///< empty where they cannot be seen
  double seconds_since_last = 0;      ///< since the metrics file was written to
};

/// Looks at the run; where it runs here, for `watched` at its ranks. Throws ConfigError.
[[nodiscard]] TopView look_at(const std::string& path, std::chrono::milliseconds watched);

/// The view as lines for people, at most `columns` wide.
[[nodiscard]] std::string to_text(const TopView& view, std::size_t columns);
/// The same numbers as one JSON object (docs/live.md).
[[nodiscard]] std::string to_json(const TopView& view);

}  // namespace chimera
