#pragma once

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

// Whether the rank threads of one process still work together, and if not, why.

// One directed channel between two rank threads: tensors by reference, first in, first out.

namespace chimera {

/// Open until someone closes it; the first reason stays.
class CloseFlag {
 public:
  void close(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    why_ = why;
    closed_ = true;
  }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// Throws PeerLostError once closed: "OPERATION: WHY". `describe` returns the operation and is called only then.
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

/// A tensor and, beside it, what it is.
struct TaggedTensor {
  at::Tensor tensor;
  MessageTag tag;
};

/// Messages are numbered from 0 in the order sent. One thread sends, one receives, any may wake().
class ThreadChannel {
 public:
  /// Hands over the next message; never blocks for long.
  void send(TaggedTensor message);
  /// The number of the message that the next receive stands for; for the receiver's thread alone.
  [[nodiscard]] std::int64_t post() { return posted_++; }
  /// Blocks until message `number` is there or `close_flag` is closed; returns an undefined tensor in the latter case.
  /// To be called once for each number.
  [[nodiscard]] TaggedTensor take(std::int64_t number, const CloseFlag& close_flag);
  /// Makes a blocked take() look at its flag again.
  void wake();

 private:
  struct Handed {
    Handover tensor;
    MessageTag tag;
  };

  std::mutex mutex_;
  std::condition_variable arrived_;
  std::deque<Handed> messages_;  ///< messages first_, first_ + 1, ...; undefined once taken
  std::int64_t first_ = 0;
  bool receiver_waits_ = false;  ///< a system call to notify nobody is worth avoiding
  std::int64_t posted_ = 0;
};

}  // namespace chimera
