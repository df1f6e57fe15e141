#pragma once
// What `chimera top` shows of a run.

#include <optional>
#include <string>
#include <vector>

#include "telemetry/live_ranks.h"
#include "telemetry/run_history.h"

namespace chimera {

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
