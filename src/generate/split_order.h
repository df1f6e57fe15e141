#pragma once
// Fills bubbles with weight gradients. In schedules with split backwards, a backward is an input gradient (I), which
// other workers wait for, and a weight gradient (W), which can wait. A generator places only forwards (F) and I in
// *slots*, time steps of equal length. SplitOrder then puts the W into the free slots:
//
//   slots of F and I    F0  .  F1 I0  .  I1  .          order    F0 F1 I0 W0 I1 W1

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// An op and the time slot in which it runs, from 0.
struct SlottedOp {
  std::int64_t slot = 0;
  Op op;
};

/// Makes one worker's order of ops. Each free slot gets the W of the oldest I that has none yet. If slots do not
/// suffice, the remaining W come last.
class SplitOrder {
 public:
  /// Adds an F or I. Its slot must be higher than the slots of all ops added before.
  void add(const SlottedOp& entry);
  /// Adds ops in any order. Their slots must be higher than the slots of all ops added before.
  void add_unsorted(std::vector<SlottedOp> entries);

  /// Returns and removes all ops, with a W for each I.
  [[nodiscard]] std::vector<Op> take();

 private:
  void fill(std::int64_t free_slots);

  std::vector<Op> order_;
  std::vector<Op> weights_;  // All W, in the order of their I
  std::size_t filled_ = 0;   // Number of weights_ in order_
  std::int64_t slot_ = 0;    // First slot after the last op
};

}  // namespace chimera
