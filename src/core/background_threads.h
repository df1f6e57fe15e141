#pragma once
// Threads that let those go first that compute.

#include <sched.h>

namespace chimera {

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
