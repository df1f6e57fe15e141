#include "launch/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace chimera {

HangWatch::Duration HangWatch::interval() const {
  return std::clamp<Duration>(beyond_ / 8, std::chrono::milliseconds(20), std::chrono::seconds(1));
}

bool HangWatch::look(Clock::time_point now, const std::vector<std::uint64_t>& counts, bool in_steps) {
  const Duration passed = last_look_ ? std::min(now - *last_look_, 2 * interval()) : Duration::zero();
  last_look_ = now;
  pause_ += passed;
  if (counts != counts_) {
    if (was_in_steps_) longest_ = std::max(longest_, pause_);
    pause_ = Duration::zero();
    counts_ = counts;
  }
  was_in_steps_ = in_steps;
  return pause_ > (in_steps ? longest_ + beyond_ : kStartUpFactor * beyond_);
}

const StuckRank& find_stuck(std::span<const StuckRank> ranks) {
  const auto innocence = [](const StuckRank& rank) {
    const RankProgress& at = rank.progress;
    return std::tuple(!rank.stopped, waits_for_others(at), at.phase, at.step);
  };
  return *std::ranges::min_element(ranks, {}, innocence);
}

std::string describe_hang(const StuckRank& stuck, HangWatch::Duration pause) {
  const char* state = stuck.stopped                      ? "stopped by a signal"
                      : waits_for_others(stuck.progress) ? "like the others, it waits"
                                                         : "it hangs";
  return fmt::format("rank {} has made no progress for {:.1f} s: {} at {}", stuck.rank,
                     std::chrono::duration<double>(pause).count(), state, to_text(stuck.progress));
}

}  // namespace chimera
