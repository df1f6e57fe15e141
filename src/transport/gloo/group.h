#pragma once
// c10d's Gloo backend, only for sources of this folder. Debian's Gloo headers are older than the Gloo in libtorch_cpu:
// never call Gloo's types, only pass pointers.

#define USE_DISTRIBUTED
#define USE_C10D_GLOO
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "transport/connection_breaker.h"

namespace chimera {

using GlooGroup = c10::intrusive_ptr<c10d::ProcessGroupGloo>;

/// Throws Gloo's errors, also if `breaker` (may be null) aborts the send or receive.
inline void wait_for(c10d::Work& work, std::chrono::milliseconds timeout, ConnectionBreaker* breaker = nullptr) {
  const ConnectionBreaker::Wait wait(breaker, [&work] { work.abort(); });
  if (!work.wait(timeout)) throw std::runtime_error("aborted");
}

/// A collective cannot be aborted: its thread may wait forever.
inline void wait_for_collective(c10d::Work& work, std::chrono::milliseconds timeout, ConnectionBreaker* breaker) {
  if (breaker == nullptr) return wait_for(work, timeout);
  struct Ending {
    std::mutex mutex;
    std::condition_variable news;
    bool has_come = false;
    bool is_aborted = false;

    void come(bool& how) {
      const std::lock_guard lock(mutex);
      how = true;
      news.notify_all();
    }
  };
  const auto ending = std::make_shared<Ending>();
  work.getFuture()->addCallback([ending](c10::ivalue::Future&) { ending->come(ending->has_come); });
  const ConnectionBreaker::Wait wait(breaker, [ending] { ending->come(ending->is_aborted); });
  {
    std::unique_lock lock(ending->mutex);
    const auto has_ended = [&] { return ending->has_come || ending->is_aborted; };
    if (!ending->news.wait_for(lock, timeout, has_ended)) throw std::runtime_error("Timed out");
    if (!ending->has_come) throw std::runtime_error("aborted");
  }
  wait_for(work, timeout);
}

}  // namespace chimera
