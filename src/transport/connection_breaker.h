#pragma once

// Ends every wait of a rank for other ranks, so that it can abandon a step if a rank is lost. Gloo has no such call, so
// the sockets of the process are shut down; NCCL's communicators are aborted. The thread of RecoveryLink
// (launch/local/recovery.h) calls break_all() while the rank's main thread waits.

#include <sys/types.h>
#include <atomic>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

namespace chimera {

/// Returns the sockets of this process's open TCP connections, as inodes. Comparing two results shows whether a
/// connection has failed, because Gloo closes its socket then.
[[nodiscard]] std::set<ino_t> open_tcp_connections();

/// Breaks the connections of this process: every wait for another rank fails, even if the other rank still runs.
/// Thread-safe. If the process has other TCP connections than those between ranks, exclude_open() or exclude_later()
/// must exclude them.
class ConnectionBreaker {
 public:
  /// Excludes the TCP connections that are open now: break_all() will not shut them down.
  void exclude_open();
  /// Excludes all TCP connections that will be opened after this call, which replaces an earlier one.
  void exclude_later();
  /// Makes break_all() also shut down TCP sockets that listen: NCCL waits for other ranks to connect, without a limit.
  void include_listeners();
  /// Shuts down all open TCP connections that are not excluded, and calls the function of the AbortScope, if one
  /// exists. Later connections and waits need another call.
  void break_all() noexcept;
  /// Returns whether break_all() was called after the last reset().
  [[nodiscard]] bool is_broken() const noexcept { return broken_; }
  /// Forgets break_all(), before new connections are made.
  void reset() noexcept { broken_ = false; }

  /// Scope during which break_all() also calls `abort`, on the thread that calls break_all(). It is for waits that do
  /// not end although their connections are shut down. `breaker` may be null: no effect. `abort` must neither throw nor
  /// use the breaker. Only one scope may exist at a time.
  class AbortScope {
   public:
    AbortScope(ConnectionBreaker* breaker, std::function<void()> abort);
    AbortScope& operator=(AbortScope&&) = delete;
    ~AbortScope();

   private:
    ConnectionBreaker* breaker_;  // null: no effect
  };

 private:
  std::mutex mutex_;
  std::set<ino_t> spared_;                      // inodes of excluded sockets
  std::optional<std::set<ino_t>> broken_only_;  // inodes of the only sockets to shut down, from exclude_later()
  std::function<void()> abort_;                 // empty: no AbortScope exists
  bool includes_listeners_ = false;
  std::atomic<bool> broken_ = false;
};

}  // namespace chimera
