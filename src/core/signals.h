#pragma once

#include <pthread.h>
#include <sched.h>
#include <signal.h>

#include <atomic>
#include <exception>

// How a long computation is given up from outside: by another thread, while the computing one looks now and then.

// Threads that take no signals.

// Threads that let those go first that compute.

namespace chimera {

/// What allow_interruption() throws. No Error: nothing was wrong with what was asked for.
class Interrupted : public std::exception {
 public:
  [[nodiscard]] const char* what() const noexcept override { return "interrupted"; }
};

/// While it lives, allow_interruption() on the calling thread obeys `wanted`, which is borrowed. They may be nested;
/// the inner one counts.
class Interruptible {
 public:
  explicit Interruptible(const std::atomic<bool>& wanted);
  ~Interruptible();
  Interruptible(const Interruptible&) = delete;
  Interruptible& operator=(const Interruptible&) = delete;

 private:
  const std::atomic<bool>* outer_;
};

/// A call for the outer loops of what may take seconds; it costs nanoseconds. Throws Interrupted where an Interruptible
/// of this thread is wanted to end.
void allow_interruption();

/// Blocks all signals of the calling thread while it lives: a thread started meanwhile never takes one, and a write of
/// it into a closed pipe only fails.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &previous_);
  }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &previous_, nullptr); }

 private:
  sigset_t previous_{};
};

/// A thread started while it lives runs as soon as a core is free, but takes none from a thread that computes because
/// something has arrived for it: it waits for the next turn. Does nothing to a thread whose turns are not the usual
/// ones (chrt).
class BackgroundThreads {
 public:
  BackgroundThreads() : is_usual_(::sched_getscheduler(0) == SCHED_OTHER) { set(SCHED_BATCH); }
  BackgroundThreads(const BackgroundThreads&) = delete;
  BackgroundThreads& operator=(const BackgroundThreads&) = delete;
  ~BackgroundThreads() { set(SCHED_OTHER); }

 private:
  void set(int policy) const {
    const sched_param none{};
    if (is_usual_) (void)::sched_setscheduler(0, policy, &none);
  }

  bool is_usual_;
};

}  // namespace chimera
