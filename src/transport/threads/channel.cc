#include "transport/threads/channel.h"

#include <fmt/format.h>

#include <utility>

#include "core/invariant.h"

namespace chimera {

void ThreadChannel::send(TaggedTensor message) {
  bool notify = false;
  QueuedMessage handed{Handover(std::move(message.tensor)), message.tag};
  {
    const std::scoped_lock lock(mutex_);
    messages_.push_back(std::move(handed));
    notify = receiver_waits_;
  }
  if (notify) arrived_.notify_one();
}

TaggedTensor ThreadChannel::take(std::int64_t number, const CloseFlag& close_flag) {
  std::unique_lock lock(mutex_);
  receiver_waits_ = true;
  const auto arrived = [&] { return number < first_ + static_cast<std::int64_t>(messages_.size()); };
  arrived_.wait(lock, [&] { return close_flag.closed() || arrived(); });
  receiver_waits_ = false;
  if (close_flag.closed()) return {};
  require_invariant(number >= first_, fmt::format("message {} of a channel is taken twice", number));
  const QueuedMessage message = std::exchange(messages_[static_cast<std::size_t>(number - first_)], QueuedMessage());
  while (!messages_.empty() && !messages_.front().tensor.tensor.defined()) {
    messages_.pop_front();
    ++first_;
  }
  lock.unlock();
  return {message.tensor.take(), message.tag};
}

void ThreadChannel::wake() {
  const std::scoped_lock lock(mutex_);
  arrived_.notify_one();
}

}  // namespace chimera
