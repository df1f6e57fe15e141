#pragma once
// Ends all waits for other ranks at once, from outside.

#include <atomic>
#include <functional>
#include <mutex>

namespace chimera {

/// Breaks the connections of this process: whoever waits for a rank at the other end is told that it is lost, also
/// where that rank lives but has itself stopped to wait for this one. Any thread may use it. The process must have no
/// TCP connections but those between ranks.
class ConnectionBreaker {
 public:
  /// Shuts down every TCP connection that is open now, and aborts the wait that has been announced; from now on
  /// broken() is true. Connections and waits that come later need another call.
  void break_all() noexcept;
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  /// Lets new connections be made.
  void mend() noexcept { broken_ = false; }

  /// While it lives, break_all() calls `abort`: a transport may be told by nobody that a message is not going to be
  /// whole. One at a time.
  class Wait {
   public:
    Wait(ConnectionBreaker* breaker, std::function<void()> abort);
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait();

   private:
    ConnectionBreaker* breaker_;  // null: nobody breaks
  };

 private:
  std::mutex mutex_;
  std::function<void()> abort_wait_;  // empty: nobody waits
  std::atomic<bool> broken_ = false;
};

}  // namespace chimera
