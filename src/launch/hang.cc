#include "launch/hang.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace chimera {

HangWatch::Duration HangWatch::interval() const {
  return std::clamp<Duration>(beyond_ / 8, std::chrono::milliseconds(20), std::chrono::seconds(1));
}

/// Whether a process has computed in the time that passed: even one that shares its core with many others.
bool HangWatch::works(const Look& look, Duration passed) const {
  for (std::size_t i = 0; i < std::min(look.work.size(), last_.work.size()); ++i) {
    if (kWorkFactor * (look.work[i] - last_.work[i]) > passed) return true;
  }
  return false;
}

bool HangWatch::look(Clock::time_point now, const Look& look) {
  const Duration passed = last_look_ ? std::min(now - *last_look_, 2 * interval()) : Duration::zero();
  last_look_ = now;
  pause_ += passed;
  counted_ += works(look, passed) ? passed / kWorkFactor : passed;
  if (look.counts != last_.counts) {
    if (last_.in_steps) longest_ = std::max(longest_, counted_);
    pause_ = counted_ = Duration::zero();
  }
  last_ = look;
  return counted_ > (look.in_steps ? longest_ + beyond_ : kStartUpFactor * beyond_);
}

HangWatch::Look look_at(const ProgressPage& page, int ranks) {
  HangWatch::Look seen{.counts = {}, .in_steps = true, .work = {}};
  for (int rank = 0; rank < ranks; ++rank) {
    seen.counts.push_back(page.count(rank));
    seen.in_steps = seen.in_steps && page.last(rank).phase == RankProgress::Phase::Steps;
  }
  return seen;
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
