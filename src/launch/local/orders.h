#pragma once

// Orders from the launcher to a rank during a recovery, over a socket pair that the rank inherits. An order can pass a
// file descriptor, the store of the next rendezvous. RankProcesses sends orders; RecoveryLink in the rank receives
// them.

#include <cstdint>
#include <optional>

#include "core/file_descriptor.h"

namespace chimera {

/// An order during a recovery. An epoch is a generation of connections, counted from 0.
struct Order {
  enum class Kind : std::int32_t {
    Leave,  ///< Leave the step and all connections, send RecoveryNote, and wait for the next order
    Join,   ///< Reconnect at the store of the order
  };
  Kind kind = Kind::Leave;
  std::int32_t epoch = 0;
};

/// Both ends of the channel; the rank inherits its end.
struct OrderChannel {
  FileDescriptor launcher;
  FileDescriptor rank;
};

/// Throws Error if the system refuses.
[[nodiscard]] OrderChannel open_order_channel();

/// Sends an order without blocking; drops it if the rank is gone or its queue is full. Join passes the descriptor
/// `store`.
void send_order(int launcher, const Order& order, int store = -1) noexcept;

struct ReceivedOrder {
  Order order;
  FileDescriptor store;
};
/// Waits for the next order; nullopt once the launcher's end is closed.
[[nodiscard]] std::optional<ReceivedOrder> receive_order(int rank);

}  // namespace chimera
