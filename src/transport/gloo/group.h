#pragma once

// Includes c10d's Gloo backend, for sources of this folder only, and has waits that a ConnectionBreaker can end. Never
// call functions of Gloo's own types, only pass pointers to them: Debian's Gloo headers are older than the Gloo in
// libtorch_cpu.

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

/// Returns c10d's options of an operation with this limit.
template <class Options>
[[nodiscard]] Options with_timeout(std::chrono::milliseconds timeout) {
  Options options;
  options.timeout = timeout;
  return options;
}

/// Starts an all-gather of tensors with the sizes of `own`. Adds the tensor of each member to `all`, which must be
/// empty; the tensors have values after the wait.
inline c10::intrusive_ptr<c10d::Work> start_gather(c10d::Backend& group, const at::Tensor& own,
                                                   std::chrono::milliseconds timeout, std::vector<at::Tensor>& all) {
  std::vector<at::Tensor> mine{own};
  for (int member = 0; member < group.getSize(); ++member) all.push_back(at::empty_like(own));
  std::vector<std::vector<at::Tensor>> gathered{all};
  return group.allgather(gathered, mine, with_timeout<c10d::AllgatherOptions>(timeout));
}

/// Waits for a send or receive. Throws Gloo's errors, and std::runtime_error if `breaker` (may be null) aborts the
/// operation.
inline void wait_for(c10d::Work& work, std::chrono::milliseconds timeout, ConnectionBreaker* breaker = nullptr) {
  const ConnectionBreaker::AbortScope wait(breaker, [&work] { work.abort(); });
  if (!work.wait(timeout)) throw std::runtime_error("aborted");
}

/// The end of an operation of other threads, for which a rank's thread waits. Thread-safe.
class OperationEnd {
 public:
  /// Called by the thread that ends the operation. If it has succeeded, first calls the functions of call_when_done().
  void end(bool has_succeeded) noexcept {
    std::unique_lock lock(mutex_);
    while (!when_done_.empty()) {
      const auto calls = std::exchange(when_done_, {});
      lock.unlock();
      for (const auto& done : calls)
        if (has_succeeded) done();
      lock.lock();
    }
    is_over_ = true;
    news_.notify_all();
  }
  /// Waits for end(). Throws std::runtime_error on timeout, or if `breaker` (may be null) breaks the connections
  /// before.
  void await(std::chrono::milliseconds timeout, ConnectionBreaker* breaker) {
    const ConnectionBreaker::AbortScope wait(breaker, [this] { abort(); });
    std::unique_lock lock(mutex_);
    if (!news_.wait_for(lock, timeout, [&] { return is_over_ || is_aborted_; })) throw std::runtime_error("Timed out");
    if (!is_over_) throw std::runtime_error("aborted");
  }
  /// Makes end() call `done`, and returns true. Returns false if the operation is over; then the caller calls `done`
  /// itself.
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

/// Waits for a collective. Gloo cannot abort a collective, whose thread may wait forever. So this function waits for an
/// OperationEnd, and throws if connections break, although the thread of the collective still waits.
inline void wait_for_collective(c10d::Work& work, std::chrono::milliseconds timeout, ConnectionBreaker* breaker) {
  if (breaker != nullptr) {
    const auto end = std::make_shared<OperationEnd>();
    work.getFuture()->addCallback([end](c10::ivalue::Future&) { end->end(true); });
    end->await(timeout, breaker);
  }
  wait_for(work, timeout);
}

}  // namespace chimera
