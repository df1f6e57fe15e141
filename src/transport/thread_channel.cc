#include "transport/thread_channel.h"

#include <utility>

namespace chimera {

void ThreadChannel::send(TaggedTensor message) {
  bool notify = false;
  {
    const std::scoped_lock lock(mutex_);
    messages_.push_back(std::move(message));
    notify = receiver_waits_;
  }
  if (notify) arrived_.notify_one();
}

TaggedTensor ThreadChannel::take(std::int64_t number, const Closure& closure) {
  std::unique_lock lock(mutex_);
  receiver_waits_ = true;
  const auto arrived = [&] { return number < first_ + static_cast<std::int64_t>(messages_.size()); };
  arrived_.wait(lock, [&] { return closure.closed() || arrived(); });
  receiver_waits_ = false;
  if (closure.closed()) return {};
  TaggedTensor message = std::exchange(messages_[static_cast<std::size_t>(number - first_)], {});
  while (!messages_.empty() && !messages_.front().tensor.defined()) {
    messages_.pop_front();
    ++first_;
  }
  return message;
}

void ThreadChannel::wake() {
  const std::scoped_lock lock(mutex_);
  arrived_.notify_one();
}

}  // namespace chimera
