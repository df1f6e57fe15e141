#include "launch/local/recovery_link.h"

#include <sys/socket.h>

#include <limits>
#include <utility>

#include "launch/local/orders.h"
#include "launch/local/rank.h"

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kBetweenCalls{5};

}  // namespace

RecoveryLink::RecoveryLink(int rank, std::int64_t epoch, FileDescriptor orders, std::function<void()> end_waits)
    : rank_(rank),
      orders_(std::move(orders)),
      end_waits_(std::move(end_waits)),
      epoch_(epoch),
      ordered_(epoch),
      left_(epoch),
      joined_(0),
      thread_([this] { take_orders(); }) {}

RecoveryLink::~RecoveryLink() {
  {
    const std::lock_guard lock(mutex_);
    left_ = std::numeric_limits<std::int64_t>::max();  // a rank that fails does not wait for others any more
  }
  news_.notify_all();
  ::shutdown(orders_.get(), SHUT_RDWR);
  thread_.join();
}

void RecoveryLink::take_orders() {
  while (auto received = receive_order(orders_.get())) {
    const std::int64_t epoch = received->order.epoch;
    std::unique_lock lock(mutex_);
    if (received->order.kind == Order::Kind::Join) {
      joined_ = epoch;
      store_ = std::move(received->store);
      news_.notify_all();
      continue;
    }
    ordered_ = epoch;
    news_.notify_all();
    while (left_ < ordered_) {
      is_ending_waits_ = true;
      lock.unlock();
      end_waits_();
      lock.lock();
      is_ending_waits_ = false;
      news_.notify_all();
      news_.wait_for(lock, kBetweenCalls, [&] { return left_ >= ordered_; });
    }
  }
}

bool RecoveryLink::must_leave(std::chrono::milliseconds patience) {
  std::unique_lock lock(mutex_);
  return news_.wait_for(lock, patience, [&] { return ordered_ > epoch_; });
}

FileDescriptor RecoveryLink::rejoin(const std::function<void()>& on_left) {
  std::unique_lock lock(mutex_);
  epoch_ = left_ = ordered_;
  news_.notify_all();
  news_.wait(lock, [&] { return !is_ending_waits_; });
  on_left();
  note_recovery({.rank = rank_, .kind = RecoveryNote::Kind::Left, .epoch = epoch_});
  news_.wait(lock, [&] { return joined_ == epoch_; });
  return std::move(store_);
}

void RecoveryLink::note_resumed(std::int64_t step) const {
  note_recovery({.rank = rank_, .kind = RecoveryNote::Kind::Resumed, .epoch = epoch_, .step = step});
}

}  // namespace chimera
