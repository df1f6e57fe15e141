#pragma once
// c10d's Gloo backend as this project uses it, included by source files of this folder alone. It is compiled against
// Debian's Gloo headers, older than the Gloo inside libtorch_cpu: Gloo's types are passed on through pointers and never
// called.

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

/// Throws what Gloo throws, also where the work was aborted, as a send or receive is by `breaker` (null: none): Gloo
/// does not tell who waits for a message of which a part has come that its connection is gone.
inline void wait_for(c10d::Work& work, std::chrono::milliseconds timeout, ConnectionBreaker* breaker = nullptr) {
  const ConnectionBreaker::Wait wait(breaker, [&work] { work.abort(); });
  if (!work.wait(timeout)) throw std::runtime_error("aborted");
}

/// The same of a collective, which cannot be aborted: its thread may then wait for ever, for the rest of a message.
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
