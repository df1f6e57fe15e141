#pragma once
// Messages that wait for their link, where how long those before them take is not known beforehand.

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <unordered_map>

#include "schedule/dependencies.h"

namespace chimera {

/// Every ordered pair of workers has a link that carries one message at a time, in the order of `push`: links.h, for
/// messages whose speed changes while they are on their way.
class LinkQueues {
 public:
  /// Whether the link is free, so that the message with the result of `made` begins now; else it waits.
  [[nodiscard]] bool push(std::size_t from, std::size_t to, OpIndex made) {
    std::deque<OpIndex>& queue = queues_[key(from, to)];
    queue.push_back(made);
    return queue.size() == 1;
  }
  /// Ends the message under way on that link; the one that begins now, if one waits.
  [[nodiscard]] std::optional<OpIndex> pop(std::size_t from, std::size_t to) {
    std::deque<OpIndex>& queue = queues_.at(key(from, to));
    queue.pop_front();
    return queue.empty() ? std::nullopt : std::optional(queue.front());
  }

 private:
  static std::uint64_t key(std::size_t from, std::size_t to) { return (static_cast<std::uint64_t>(from) << 32) | to; }

  std::unordered_map<std::uint64_t, std::deque<OpIndex>> queues_;  // (from, to): the first is under way
};

}  // namespace chimera
