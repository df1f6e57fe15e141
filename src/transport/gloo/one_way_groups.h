#pragma once
// Gloo groups whose connections carry messages one way only.

#include <chrono>
#include <span>

#include "transport/gloo/group.h"

namespace chimera {

/// Two groups of all ranks. Where a sender is interrupted while it holds a connection's lock, Gloo's thread tries that
/// lock again and again, for as long as the kernel lets it, if anything has arrived there. Here next to nothing does.
struct OneWayGroups {
  GlooGroup up;    // messages to higher ranks
  GlooGroup down;  // and to lower ones

  [[nodiscard]] GlooGroup& between(int from, int to) { return from < to ? up : down; }
  void release() {
    up.release();
    down.release();
  }
};

/// Sums over all ranks, each of which calls it: rank 0 adds what the others have, in ascending order, and tells them.
/// `tag` belongs to these sums alone. Throws what wait_for() throws.
void sum_over_ranks(OneWayGroups& groups, std::span<double> values, int tag, std::chrono::milliseconds timeout,
                    ConnectionBreaker* breaker);

}  // namespace chimera
