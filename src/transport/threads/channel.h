#pragma once

// Messages between ranks that are threads of one process: a queue that passes tensors by reference.

#include <ATen/core/Tensor.h>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>

#include "core/error.h"
#include "transport/message.h"
#include "transport/stream.h"

namespace chimera {

/// Flag that can be closed; keeps the first reason.
class CloseFlag {
 public:
  void close(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    why_ = why;
    closed_ = true;
  }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// Throws PeerLostError "OPERATION: WHY" if closed. `describe` returns the operation.
  template <class Describe>
  void check(Describe&& describe) const {
    if (!closed_) return;
    const std::scoped_lock lock(mutex_);
    throw PeerLostError(describe() + ": " + why_);
  }

 private:
  std::atomic<bool> closed_ = false;
  mutable std::mutex mutex_;
  std::string why_;
};

struct TaggedTensor {
  at::Tensor tensor;
  MessageTag tag;
};

/// Directed FIFO channel between two threads, by reference. Messages are numbered from 0. One thread sends, one
/// receives, any thread may call wake().
class ThreadChannel {
 public:
  void send(TaggedTensor message);
  /// Returns the number of the next message to receive.
  [[nodiscard]] std::int64_t post() { return posted_++; }
  /// Blocks until message `number` arrives. Returns an undefined tensor if `close_flag` is closed. Call it once per
  /// number.
  [[nodiscard]] TaggedTensor take(std::int64_t number, const CloseFlag& close_flag);
  /// Makes a blocked take() check its flag again.
  void wake();

 private:
  struct QueuedMessage {
    Handover tensor;
    MessageTag tag;
  };

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<QueuedMessage> messages_;  ///< messages first_, first_ + 1, ...; undefined once taken
  std::int64_t first_ = 0;
  bool receiver_waits_ = false;  ///< avoids a system call for an unneeded notification
  std::int64_t posted_ = 0;
};

}  // namespace chimera
