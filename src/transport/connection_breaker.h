#pragma once

// Ends every wait for a peer at once, so that a rank can leave a step whose peer is lost. Gloo has no such call, so the
// sockets of the process are shut down.

#include <sys/types.h>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

namespace chimera {

/// Breaks the connections of this process: every wait for a peer fails, even if the peer is alive. Thread-safe.
/// Without spare_open() and spare_later(), the process must have no TCP connections except those between ranks.
class ConnectionBreaker {
 public:
  /// Spares the TCP connections that are open now.
  void spare_open();
  /// Spares all TCP connections that will be opened.
  void spare_later();
  /// Shuts down all open TCP connections that are not spared, and aborts the current Wait. Later connections and waits
  /// need another call.
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
  std::set<ino_t> spared_;                      // by inode of the socket
  std::optional<std::set<ino_t>> broken_only_;  // set by spare_later()
  std::function<void()> abort_wait_;            // empty: no wait is registered
  std::atomic<bool> broken_ = false;
};

}  // namespace chimera
