#pragma once

// Sums inside ops, in the memory that ranks of one host share. If several ranks share layers (tensor parallelism), they
// add their results many times in an op, and nothing else runs meanwhile, so these sums must be short: no socket, no
// thread, one copy.
//
//   own values -> own slot -> "turn n" -> wait for the turn of each peer -> own values + the peers' slots
//
// There are two slots. A rank writes a slot again two sums later, after its peers have announced the sum in between and
// so have read it.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "core/shared_memory.h"
#include "transport/connection_breaker.h"
#include "transport/gloo/group.h"

namespace chimera {

/// Sums of the members of a group, which are on one host, and call add() and exchange() with equal sizes in the same
/// order. For the rank's own thread.
class OpSum {
 public:
  /// `members` is the process group in which members exchange the addresses of their slots. `breaker` (may be null)
  /// ends waits.
  OpSum(GlooGroup members, std::shared_ptr<ConnectionBreaker> breaker);
  OpSum& operator=(OpSum&&) = delete;
  /// Peers that wait for this rank then throw.
  ~OpSum();

  /// Adds `values` (flat, contiguous) of all members in ascending order, in place. Throws PeerLostError if a member has
  /// ended, TransportError on timeout, and Gloo's errors.
  void add(const at::Tensor& values, std::chrono::milliseconds timeout);
  /// Returns the `values` (contiguous) of all members, [member], for reading until the next call. Throws as add() does.
  [[nodiscard]] std::vector<at::Tensor> exchange(const at::Tensor& values, std::chrono::milliseconds timeout);

 private:
  struct Slots;
  void make_slots(std::size_t bytes, std::chrono::milliseconds timeout);
  void await(std::size_t member, std::chrono::milliseconds timeout) const;

  GlooGroup members_;
  std::shared_ptr<ConnectionBreaker> breaker_;
  std::size_t slot_bytes_ = 0;
  std::uint32_t turn_ = 0;
  std::vector<std::unique_ptr<Slots>> slots_;  // [member]
};

}  // namespace chimera
