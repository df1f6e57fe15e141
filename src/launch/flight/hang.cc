#include "launch/flight/hang.h"

#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <numeric>
#include <tuple>

#include "core/console.h"
#include "core/error.h"

namespace chimera {

HangWatch::Duration HangWatch::interval() const {
  // The minimum exceeds scheduling delays on a busy core.
  return std::clamp<Duration>(beyond_ / 16, std::chrono::milliseconds(50), std::chrono::seconds(1));
}

/// Returns whether a process used more than 1/kWorkFactor of the time, or waits for a disk.
///
/// A hung rank may still use a little processor time, for its heartbeats and its loader.
bool HangWatch::is_working(const Observation& now, Duration passed) const {
  if (now.is_waiting_for_disk) return true;
  for (std::size_t i = 0; i < std::min(now.work.size(), last_.work.size()); ++i)
    if (kWorkFactor * (now.work[i] - last_.work[i]) > passed) return true;
  return false;
}

/// The time includes the end of the step, such as a validation.
void HangWatch::time_step(const Observation& now, Duration passed) {
  if (steps_to_time_ == 0 || !last_.in_steps) return;
  step_ += passed;
  if (now.step <= last_.step) return;
  first_steps_ += std::exchange(step_, Duration::zero());
  --steps_to_time_;
}

// A pause is judged by the pauses before it: a job whose micro-batches take a minute may be silent for a minute, so the
// limit is the longest pause so far plus `beyond`. Before all ranks have shown one step there is nothing to compare
// with, and loading a model or connecting may take long, so the limit is then `at_start`.
bool HangWatch::update(Clock::time_point time, const Observation& now) {
  const Duration passed = last_update_ ? std::min(time - *last_update_, 2 * interval()) : Duration::zero();
  last_update_ = time;
  time_step(now, passed);
  pause_ += passed;
  counted_ += is_working(now, passed) ? passed / kWorkFactor : passed;
  if (now.counts != last_.counts) {
    if (last_.in_steps) longest_ = std::max(longest_, counted_);
    pause_ = counted_ = Duration::zero();
  }
  last_ = now;
  const Duration at_start = now.is_stopped ? beyond_ : at_start_;
  if (!now.in_steps) return counted_ > at_start;
  if (!first_step_) first_step_ = now.step;
  const bool has_seen_all = now.step == 0 || now.step > *first_step_;
  const Duration longest = std::max(longest_, kRecordedFactor * first_steps_);
  return counted_ > longest + (has_seen_all ? beyond_ : std::max(beyond_, at_start));
}

HangWatch::Observation observe(const ProgressPage& page, std::span<const int> ranks) {
  HangWatch::Observation seen{.in_steps = true};
  for (const int rank : ranks) {
    const RankProgress last = page.last(rank);
    seen.counts.push_back(page.count(rank));
    seen.in_steps = seen.in_steps && last.phase == RankProgress::Phase::Steps;
    seen.step = rank == ranks.front() ? last.step : std::min(seen.step, last.step);
  }
  return seen;
}

// The order of innocence: a rank that a signal has stopped is the cause whatever it was doing; a rank that waits for
// others is not; and of several that wait, as in a deadlock, the one that has come least far.
const StuckRank& find_stuck(std::span<const StuckRank> ranks) {
  const auto innocence = [](const StuckRank& rank) {
    const RankProgress& at = rank.progress;
    return std::tuple(!rank.is_stopped, waits_for_others(at), at.phase, at.step);
  };
  return *std::ranges::min_element(ranks, {}, innocence);
}

std::string describe_hang(const StuckRank& stuck, HangWatch::Duration pause) {
  const char* state = stuck.is_stopped                   ? "stopped by a signal"
                      : waits_for_others(stuck.progress) ? "like the others, it waits"
                                                         : "it hangs";
  std::string text = fmt::format("rank {} has made no progress for {:.1f} s: {} at {}", stuck.rank,
                                 std::chrono::duration<double>(pause).count(), state, to_text(stuck.progress));
  if (const auto retries = stuck.progress.allocation_retries; retries > 0) {
    text += fmt::format(
        "; its GPU's memory was full {} time{} before, and to free some can wait for messages: use less memory",
        retries, retries == 1 ? "" : "s");
  }
  return text;
}

ThreadHangWatch::ThreadHangWatch(int ranks, std::chrono::milliseconds hang, std::chrono::milliseconds hang_at_start,
                                 bool waits_idle, bool records_steps)
    : page_(ranks), ranks_(ranks), watch_(hang, hang_at_start, records_steps), waits_idle_(waits_idle) {
  if (hang.count() > 0) thread_ = std::jthread([this](const std::stop_token& stopped) { run(stopped); });
}

void ThreadHangWatch::run(const std::stop_token& stopped) {
  std::vector<int> all(static_cast<std::size_t>(ranks_));
  std::iota(all.begin(), all.end(), 0);
  std::mutex mutex;
  std::unique_lock lock(mutex);
  std::condition_variable_any over;  // Notified by the request to stop
  while (over.wait_for(lock, stopped, watch_.interval(), [] { return false; }), !stopped.stop_requested()) {
    HangWatch::Observation now = observe(page_, all);
    if (waits_idle_) now.work.push_back(std::chrono::microseconds(std::clock()));  // as POSIX counts: of all threads
    if (watch_.update(HangWatch::Clock::now(), now)) end_hang();
  }
}

// Nothing can be cleaned up: the stuck thread may hold any lock.
void ThreadHangWatch::end_hang() const {
  std::vector<StuckRank> stuck;
  for (int rank = 0; rank < ranks_; ++rank) stuck.push_back({.rank = rank, .progress = page_.last(rank)});
  print_message(describe_hang(find_stuck(stuck), watch_.pause()));
  messages().drain(kDrainAfterFailure);
  ::_exit(static_cast<int>(ExitCode::No));
}

ThreadHangWatch::Rank::Rank(ThreadHangWatch& watch, int rank) { set_progress_page(&watch.page_, rank); }

ThreadHangWatch::Rank::~Rank() { set_progress_page(nullptr, 0); }

}  // namespace chimera
