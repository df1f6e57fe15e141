#include "train/recover/stop_signals.h"

#include <unistd.h>

#include <atomic>

#include "core/clock.h"

// A signal asks for a save after the current step. The handler only notes the time, because little else is allowed in a
// handler; Checkpointer::votes() asks stop_requested() in each step.

namespace chimera {
namespace {

std::atomic<std::int64_t> asked_at = 0;  // Monotonic nanoseconds; 0: no request
std::atomic<bool> second_ends = false;
static_assert(std::atomic<std::int64_t>::is_always_lock_free, "signal handlers take no locks");

void on_signal(int number) {
  const std::int64_t time = monotonic_nanoseconds();
  std::int64_t first = 0;
  // Batch systems may send one signal to the process and to its group. Signals within kSameSignal count as one request.
  if (asked_at.compare_exchange_strong(first, time)) return;
  const bool is_another = time - first >= std::chrono::nanoseconds(kSameSignal).count();
  if (second_ends && is_another) ::_exit(exit_code_of_signal(number));
}

}  // namespace

StopSignals::StopSignals(Second second) {
  asked_at = 0;
  second_ends = second == Second::EndsProcess;
  struct sigaction action {};
  action.sa_handler = on_signal;
  // Reads and writes must not fail with EINTR because a batch system warns the run.
  action.sa_flags = SA_RESTART;
  for (std::size_t i = 0; i < kSavingSignals.size(); ++i) {
    ::sigaction(kSavingSignals[i], nullptr, &before_[i]);
    // nohup ignores SIGHUP, and the run must survive its terminal.
    const bool is_ignored = kSavingSignals[i] == SIGHUP && before_[i].sa_handler == SIG_IGN;
    if (!is_ignored) ::sigaction(kSavingSignals[i], &action, nullptr);
  }
}

StopSignals::~StopSignals() {
  for (std::size_t i = 0; i < kSavingSignals.size(); ++i) ::sigaction(kSavingSignals[i], &before_[i], nullptr);
  asked_at = 0;
}

void StopSignals::ignore_all() {
  struct sigaction nothing {};
  nothing.sa_handler = SIG_IGN;
  for (const int number : kSavingSignals) ::sigaction(number, &nothing, nullptr);
  before_.fill(nothing);
}

bool stop_requested() noexcept { return asked_at != 0; }

}  // namespace chimera
