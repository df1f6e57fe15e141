#pragma once
// What the launcher tells a running rank of a job that outlives the loss of others.

#include <cstdint>
#include <optional>

#include "core/file_descriptor.h"

namespace chimera {

/// An epoch is the time between two losses: the connections of one are none of the next. The first is 0.
struct Order {
  enum class Kind : std::int32_t {
    Leave,  ///< leave the step and all connections; say so; and wait for the next order
    Join,   ///< all have left: connect anew, at the store that comes with the order
  };
  Kind kind = Kind::Leave;
  std::int32_t epoch = 0;  ///< that is to begin, or begins
};

/// The launcher's end of the way to one rank, and the rank's, which it inherits.
struct OrderChannel {
  FileDescriptor launcher;
  FileDescriptor rank;
};

/// Throws Error where the system refuses.
[[nodiscard]] OrderChannel open_order_channel();

/// Never waits. A rank that is gone misses it, as one does that has not taken many orders. `store`: of Join; -1: none.
void send_order(int launcher, const Order& order, int store = -1) noexcept;

struct ReceivedOrder {
  Order order;
  FileDescriptor store;  ///< of Join
};
/// The next order; waits for it. Nothing once the launcher's end is closed.
[[nodiscard]] std::optional<ReceivedOrder> receive_order(int rank);

}  // namespace chimera
