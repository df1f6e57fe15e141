#pragma once
// A worker's order where F and I have slots of equal length and W fills the slots between them.

#include <cstdint>
#include <vector>

#include "schedule/schedule.h"

namespace chimera {

/// An op and its place among those of its worker.
struct SlottedOp {
  std::int64_t slot = 0;
  Op op;
};

/// Takes the F and I of one worker, and puts into each free slot the W of the oldest I that has none yet. The W that
/// find no slot follow.
class SplitOrder {
 public:
  /// The next op, F or I, of a higher slot than all before.
  void add(const SlottedOp& entry);
  /// The same for all of them, in any order of slots, which are higher than all before.
  void add_unsorted(std::vector<SlottedOp> entries);

  /// All ops, with a W for each I; leaves nothing.
  [[nodiscard]] std::vector<Op> take();

 private:
  void fill(std::int64_t free_slots);

  std::vector<Op> order_;
  std::vector<Op> weights_;  // in the order of their I
  std::size_t filled_ = 0;   // of weights_: those that have a slot
  std::int64_t slot_ = 0;    // the first after the last op
};

}  // namespace chimera
