#pragma once
// When a job hangs, and because of whom: decisions on what the launcher sees, with the time handed in.

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "launch/progress.h"

namespace chimera {

/// Measures for how long no rank has made progress. Time counts only while the watcher itself ran, so that a job
/// stopped as a whole and continued (Ctrl-Z, fg), or a machine that slept, is no hang.
class HangWatch {
 public:
  using Clock = std::chrono::steady_clock;
  using Duration = Clock::duration;

  /// A job hangs once no rank has made progress for `beyond` (more than zero) longer than the longest such pause in
  /// its steps so far, hence beyond the longest op; before all ranks are in their steps, for kStartUpFactor * beyond.
  explicit HangWatch(Duration beyond) : beyond_(beyond) {}
  static constexpr int kStartUpFactor = 4;

  /// How often to look. A look that comes later than twice that counts as no later.
  [[nodiscard]] Duration interval() const;
  /// One look: how often each rank has noted progress, and whether all are in their steps. Whether the job hangs.
  [[nodiscard]] bool look(Clock::time_point now, const std::vector<std::uint64_t>& counts, bool in_steps);
  /// For how long no rank has made progress.
  [[nodiscard]] Duration pause() const { return pause_; }

 private:
  Duration beyond_;
  Duration pause_{};
  Duration longest_{};
  std::optional<Clock::time_point> last_look_;
  std::vector<std::uint64_t> counts_;
  bool was_in_steps_ = false;  ///< at the last look
};

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

}  // namespace chimera
