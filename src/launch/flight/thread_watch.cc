#include "launch/flight/thread_watch.h"

#include <time.h>
#include <unistd.h>

#include <vector>

#include "core/console.h"
#include "core/error.h"
#include "launch/local/rank.h"

namespace chimera {
namespace {

/// Processor time that all threads of this process have taken so far.
std::chrono::nanoseconds processor_time() {
  timespec time{};
  ::clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

}  // namespace

ThreadWatch::ThreadWatch(int ranks, std::chrono::milliseconds hang, std::chrono::milliseconds hang_at_start,
                         bool waits_idle)
    : page_(ranks), ranks_(ranks), watch_(hang, hang_at_start), waits_idle_(waits_idle) {
  if (hang.count() > 0) thread_ = std::thread([this] { run(); });
}

ThreadWatch::~ThreadWatch() {
  {
    const std::scoped_lock lock(mutex_);
    is_over_ = true;
  }
  over_.notify_one();
  if (thread_.joinable()) thread_.join();
}

void ThreadWatch::run() {
  std::unique_lock lock(mutex_);
  while (!over_.wait_for(lock, watch_.interval(), [&] { return is_over_; })) {
    HangWatch::Look look = look_at(page_, ranks_);
    if (waits_idle_) look.work.push_back(processor_time());
    if (watch_.look(HangWatch::Clock::now(), look)) end_hang();
  }
}

void ThreadWatch::end_hang() const {
  std::vector<StuckRank> stuck;
  for (int rank = 0; rank < ranks_; ++rank) stuck.push_back({rank, /*stopped=*/false, page_.last(rank)});
  messages().write("chimera: " + describe_hang(find_stuck(stuck), watch_.pause()) + "\n");
  messages().drain(kPromptEnd);
  ::_exit(static_cast<int>(ExitCode::No));
}

ThreadWatch::Rank::Rank(ThreadWatch& watch, int rank) { note_progress_on(&watch.page_, rank); }

ThreadWatch::Rank::~Rank() { note_progress_on(nullptr, 0); }

}  // namespace chimera
