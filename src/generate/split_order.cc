#include "generate/split_order.h"

#include <algorithm>
#include <utility>

namespace chimera {

void SplitOrder::add(const SlottedOp& entry) {
  // The slots since the last op are free.
  fill(entry.slot - slot_);
  slot_ = entry.slot + 1;
  order_.push_back(entry.op);
  if (entry.op.kind == OpKind::Forward) return;
  weights_.push_back(entry.op);
  weights_.back().kind = OpKind::BackwardWeight;
}

void SplitOrder::add_unsorted(std::vector<SlottedOp> entries) {
  std::ranges::sort(entries, {}, &SlottedOp::slot);
  for (const SlottedOp& entry : entries) add(entry);
}

std::vector<Op> SplitOrder::take() {
  fill(static_cast<std::int64_t>(weights_.size()));
  return std::move(order_);
}

void SplitOrder::fill(std::int64_t free_slots) {
  // A free slot without a pending W remains a bubble, which a list of ops does not show.
  for (; free_slots > 0 && filled_ < weights_.size(); --free_slots) order_.push_back(weights_[filled_++]);
}

}  // namespace chimera
