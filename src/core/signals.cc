#include "core/signals.h"

namespace chimera {
namespace {

// For each thread, because a computation may be interrupted while others go on.
thread_local const std::atomic<bool>* interruption_wanted = nullptr;

}  // namespace

Interruptible::Interruptible(const std::atomic<bool>& wanted) : ScopedValue(interruption_wanted, &wanted) {}

void throw_if_interrupted() {
  if (interruption_wanted != nullptr && interruption_wanted->load(std::memory_order_relaxed)) throw Interrupted();
}

}  // namespace chimera
