#pragma once

#include <atomic>
#include <functional>
#include <mutex>

namespace chimera {

/// Breaks the connections of this process: every wait for a peer fails, even if the peer is alive. Thread-safe. The
/// process must have no other TCP connections.
class ConnectionBreaker {
 public:
  /// Shuts down all open TCP connections and aborts the current Wait, but no later ones.
  void break_all() noexcept;
  [[nodiscard]] bool broken() const noexcept { return broken_; }
  void mend() noexcept { broken_ = false; }

  /// Scope during which break_all() calls `abort`, for transports that do not report a partly lost message. Only one
  /// may exist.
  class Wait {
   public:
    Wait(ConnectionBreaker* breaker, std::function<void()> abort);
    Wait(const Wait&) = delete;
    Wait& operator=(const Wait&) = delete;
    ~Wait();

   private:
    ConnectionBreaker* breaker_;  // null: no effect
  };

 private:
  std::mutex mutex_;
  std::function<void()> abort_wait_;  // empty: no wait is registered
  std::atomic<bool> broken_ = false;
};

}  // namespace chimera
