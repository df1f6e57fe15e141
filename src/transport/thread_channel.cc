#include "transport/thread_channel.h"

#include <utility>

namespace chimera {

void ThreadChannel::send(at::Tensor message) {
  bool notify = false;
  Handover handed(std::move(message));
  {
    const std::scoped_lock lock(mutex_);
    messages_.push_back(std::move(handed));
    notify = receiver_waits_;
  }
  if (notify) arrived_.notify_one();
}

at::Tensor ThreadChannel::take(std::int64_t number, const Closure& closure) {
  std::unique_lock lock(mutex_);
  receiver_waits_ = true;
  const auto arrived = [&] { return number < first_ + static_cast<std::int64_t>(messages_.size()); };
  arrived_.wait(lock, [&] { return closure.closed() || arrived(); });
  receiver_waits_ = false;
  if (closure.closed()) return {};
  const Handover message = std::exchange(messages_[static_cast<std::size_t>(number - first_)], Handover());
  while (!messages_.empty() && !messages_.front().tensor.defined()) {
    messages_.pop_front();
    ++first_;
  }
  lock.unlock();
  return message.take();
}

void ThreadChannel::wake() {
  const std::scoped_lock lock(mutex_);
  arrived_.notify_one();
}

}  // namespace chimera
