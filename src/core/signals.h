#pragma once
// Interruption of long computations by Ctrl-C, and guards for what threads inherit when they start: blocked signals and
// the scheduling policy.

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <exception>
#include <initializer_list>

#include "core/scoped_value.h"

namespace chimera {

/// Thrown by throw_if_interrupted(). Not an Error, because the request was valid.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// Lets others interrupt this thread: while an object lives, throw_if_interrupted() on this thread throws if `wanted`
/// is true, which another thread or a signal handler sets. `wanted` must outlive the object. If objects are nested, the
/// innermost one applies.
class Interruptible : ScopedValue<const std::atomic<bool>*> {
 public:
  explicit Interruptible(const std::atomic<bool>& wanted);
};

/// Throws Interrupted if the flag of this thread's Interruptible is set. For the outer loops of long computations;
/// costs nanoseconds.
void throw_if_interrupted();

/// Returns a set of signals for system calls.
[[nodiscard]] inline sigset_t signal_set(std::initializer_list<int> numbers) {
  sigset_t set;
  ::sigemptyset(&set);
  for (const int number : numbers) ::sigaddset(&set, number);
  return set;
}

/// Blocks all signals of the calling thread while an object lives. A thread that is started meanwhile keeps all signals
/// blocked until its end, so that it gets no signals. Its writes to a closed pipe then only fail, without SIGPIPE.
class SignalBlocker {
 public:
  SignalBlocker() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  SignalBlocker& operator=(SignalBlocker&&) = delete;
  ~SignalBlocker() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_{};
};

/// While an object lives, threads that the calling thread starts get the scheduling policy SCHED_BATCH: they do not
/// preempt computing threads when they wake up. Has no effect if the calling thread's policy is not SCHED_OTHER.
class BackgroundThreads {
 public:
  BackgroundThreads() : is_usual_(::sched_getscheduler(0) == SCHED_OTHER) { set(SCHED_BATCH); }
  BackgroundThreads& operator=(BackgroundThreads&&) = delete;
  ~BackgroundThreads() { set(SCHED_OTHER); }

 private:
  void set(int policy) const {
    const sched_param none{};
    if (is_usual_) (void)::sched_setscheduler(0, policy, &none);
  }

  bool is_usual_;
};

}  // namespace chimera
