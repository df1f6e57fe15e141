#pragma once
// Threads that take no signals.

#include <pthread.h>
#include <signal.h>

namespace chimera {

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

}  // namespace chimera
