#pragma once
// Whether the rank threads of one process still work together, and if not, why.

#include <atomic>
#include <mutex>
#include <string>

#include "core/error.h"

namespace chimera {

/// Open until someone closes it; the first reason stays.
class CloseFlag {
 public:
  void close(const std::string& why) {
    const std::scoped_lock lock(mutex_);
    if (closed_) return;
    why_ = why;
    closed_ = true;
  }
  [[nodiscard]] bool closed() const noexcept { return closed_; }
  /// Throws PeerLostError once closed: "OPERATION: WHY". `describe` returns the operation and is called only then.
  template <class Describe>
  void check(Describe&& describe) const {
    if (!closed_) return;
    const std::scoped_lock lock(mutex_);
    throw PeerLostError(describe() + ": " + why_);
  }

 private:
  std::atomic<bool> closed_ = false;
  mutable std::mutex mutex_;
  std::string why_;
};

}  // namespace chimera
