#pragma once
// c10d's Gloo backend as this project uses it, included by source files of this folder alone. It is compiled against
// Debian's Gloo headers, older than the Gloo inside libtorch_cpu: Gloo's types are passed on through pointers and never
// called.

#define USE_DISTRIBUTED
#define USE_C10D_GLOO
#include <chrono>
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

}  // namespace chimera
