#pragma once
// A c10d store whose waits can be ended from outside.

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "transport/connection_breaker.h"

namespace chimera {

/// What `store` does, except that a wait for a key throws PeerLostError soon after `breaker` has broken connections:
/// whoever would have set the key may never come.
[[nodiscard]] c10::intrusive_ptr<c10d::Store> breakable_store(c10::intrusive_ptr<c10d::Store> store,
                                                              std::shared_ptr<ConnectionBreaker> breaker);

}  // namespace chimera
