#pragma once
// Finds ranks that hang where they are threads of this process, as launch() does where they are processes.

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>

#include "launch/flight/hang.h"
#include "launch/flight/progress.h"

namespace chimera {

/// While it lives, a thread of its own looks at the progress of the rank threads. Where they hang (see HangWatch) it
/// names the rank that holds the others up on stderr, in one line, and ends the process with ExitCode::No: a thread
/// that hangs can be neither joined nor ended. A process that is stopped as a whole does not hang.
class ThreadWatch {
 public:
  /// `hang`, `hang_at_start` and `waits_idle` as in LaunchPlan; 0: nobody looks. Throws Error where the system refuses.
  ThreadWatch(int ranks, std::chrono::milliseconds hang, std::chrono::milliseconds hang_at_start, bool waits_idle);
  ThreadWatch(const ThreadWatch&) = delete;
  ThreadWatch& operator=(const ThreadWatch&) = delete;
  ~ThreadWatch();

  /// While it lives, the thread that made it is this rank: its note_progress() counts.
  class Rank {
   public:
    Rank(ThreadWatch& watch, int rank);
    Rank(const Rank&) = delete;
    Rank& operator=(const Rank&) = delete;
    ~Rank();
  };

 private:
  void run();
  [[noreturn]] void end_hang() const;

  ProgressPage page_;
  int ranks_;
  HangWatch watch_;
  bool waits_idle_;
  std::mutex mutex_;
  std::condition_variable over_;
  bool is_over_ = false;
  std::thread thread_;  // last: it uses all the others
};

}  // namespace chimera
