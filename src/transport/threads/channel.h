#pragma once
// One directed channel between two rank threads: tensors by reference, first in, first out.

#include <ATen/core/Tensor.h>

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>

#include "transport/message.h"
#include "transport/stream.h"
#include "transport/threads/close_flag.h"

namespace chimera {

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
