#pragma once

// c10d's Gloo backend, only for sources of this folder, and waits that a ConnectionBreaker can end. Debian's Gloo
// headers are older than the Gloo in libtorch_cpu: never call Gloo's types, only pass pointers.

#define USE_DISTRIBUTED
#define USE_C10D_GLOO
#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>
#include <utility>
#include <vector>

#include "transport/connection_breaker.h"

namespace chimera {

using GlooGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;
using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

/// Throws Gloo's errors, also if `breaker` (may be null) aborts the send or receive.
inline void wait_for(c10d::Work& work, std::chrono::milliseconds timeout, ConnectionBreaker* breaker = nullptr) {
  const ConnectionBreaker::Wait wait(breaker, [&work] { work.abort(); });
  if (!work.wait(timeout)) throw std::runtime_error("aborted");
}

/// The end of an operation that other threads carry out, for the rank that waits for it. Thread-safe.
class OperationEnd {
 public:
  /// Calls the waiting functions if the operation has succeeded, then ends the wait.
  void end(bool has_succeeded) noexcept {
    std::unique_lock lock(mutex_);
    while (!when_done_.empty()) {
      const auto calls = std::exchange(when_done_, {});
      lock.unlock();
      for (const auto& done : calls) {
        if (has_succeeded) done();
      }
      lock.lock();
    }
    is_over_ = true;
    news_.notify_all();
  }
  /// Throws on timeout, and if `breaker` (may be null) breaks the connections first.
  void await(std::chrono::milliseconds timeout, ConnectionBreaker* breaker) {
    const ConnectionBreaker::Wait wait(breaker, [this] { abort(); });
    std::unique_lock lock(mutex_);
    if (!news_.wait_for(lock, timeout, [&] { return is_over_ || is_aborted_; })) throw std::runtime_error("Timed out");
    if (!is_over_) throw std::runtime_error("aborted");
  }
  /// Returns false if the operation is over; then the caller calls `done` itself.
  bool call_when_done(std::function<void()>& done) {
    const std::lock_guard lock(mutex_);
    if (!is_over_) when_done_.push_back(std::move(done));
    return !is_over_;
  }

 private:
  void abort() {
    const std::lock_guard lock(mutex_);
    is_aborted_ = true;
    news_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable news_;
  std::vector<std::function<void()>> when_done_;
  bool is_over_ = false;
  bool is_aborted_ = false;
};

/// A collective cannot be aborted: its thread may wait forever. So the rank waits for the end of the collective
/// instead, and leaves that thread behind if connections break.
inline void wait_for_collective(c10d::Work& work, std::chrono::milliseconds timeout, ConnectionBreaker* breaker) {
  if (breaker != nullptr) {
    const auto end = std::make_shared<OperationEnd>();
    work.getFuture()->addCallback([end](c10::ivalue::Future&) { end->end(true); });
    end->await(timeout, breaker);
  }
  wait_for(work, timeout);
}

}  // namespace chimera
