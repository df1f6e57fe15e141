#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "schedule/program.h"

namespace chimera {

/// One end's start of a transfer.
struct Issue {
  std::uint32_t tensor = 0;
  std::uint32_t worker = 0;
  std::uint32_t position = 0;  // of the instruction
  bool is_send = false;
};

/// The queues between workers: an issue meets the oldest one of the queue's other end that has met none.
class Channels {
 public:
  Channels(std::size_t workers, ChannelDiscipline discipline) : of_worker_(workers), discipline_(discipline) {}

  /// The other end's issue that this one meets, if that is there already; otherwise this one is kept for it. After a
  /// meeting that should not have been (`break_channel`) nothing meets on the queue.
  std::optional<Issue> issue(const Issue& issue, std::uint32_t peer) {
    Queue& queue = queues_[queue_of(issue, peer)];
    if (queue.is_broken) return std::nullopt;
    if (queue.is_empty() || queue.front().worker == issue.worker) {
      queue.waiting.push_back(issue);
      return std::nullopt;
    }
    return queue.pop();
  }

  void break_channel(const Issue& issue, std::uint32_t peer) { queues_[queue_of(issue, peer)].is_broken = true; }

 private:
  struct Queue {
    std::vector<Issue> waiting;  // of one end, from `head` on
    std::size_t head = 0;
    bool is_broken = false;
    [[nodiscard]] bool is_empty() const { return head == waiting.size(); }
    [[nodiscard]] const Issue& front() const { return waiting[head]; }
    Issue pop() {
      const Issue first = waiting[head++];
      if (is_empty()) {
        waiting.clear();
        head = 0;
      }
      return first;
    }
  };

  struct Named {
    std::uint64_t name;  // the other end and, with queues per direction, the direction
    std::uint32_t queue;
  };

  std::uint64_t name(std::uint32_t peer, bool is_send) const {
    return 2 * std::uint64_t{peer} + (discipline_ == ChannelDiscipline::PerDirection && is_send ? 1 : 0);
  }

  std::uint32_t queue_of(const Issue& issue, std::uint32_t peer) {
    const std::uint64_t named = name(peer, issue.is_send);
    const auto found = place_of(issue.worker, named);
    if (found != of_worker_[issue.worker].end() && found->name == named) return found->queue;
    const auto queue = static_cast<std::uint32_t>(queues_.size());
    queues_.emplace_back();
    of_worker_[issue.worker].insert(found, {named, queue});
    const std::uint64_t other = name(issue.worker, !issue.is_send);
    of_worker_[peer].insert(place_of(peer, other), {other, queue});
    return queue;
  }

  std::vector<Named>::iterator place_of(std::uint32_t worker, std::uint64_t named) {
    auto& known = of_worker_[worker];
    return std::lower_bound(known.begin(), known.end(), named,
                            [](const Named& a, std::uint64_t b) { return a.name < b; });
  }

  std::vector<std::vector<Named>> of_worker_;  // ascending by name
  std::vector<Queue> queues_;
  ChannelDiscipline discipline_;
};

}  // namespace chimera
