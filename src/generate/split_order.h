#pragma once
// Fills bubbles with weight gradients. A rule for split backward gives only slots of forwards (F) and input gradients
// (I); this class adds the weight gradients (W):
//
//   slots of F and I    F0  .  F1 I0  .  I1  .          order    F0 F1 I0 W0 I1 W1

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

struct SlottedOp {
  std::int64_t slot = 0;
  Op op;
};

/// Makes a worker's order. Each free slot takes the W of the oldest pending I. Other W come last.
class SplitOrder {
 public:
  /// Adds an F or I in a higher slot than all before.
  void add(const SlottedOp& entry);
  /// Adds ops in any order, all in higher slots than before.
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
