#include "generate/dualpipe_order.h"

namespace chimera {

std::vector<Op> dualpipe_order(const Chunk& near, const Chunk& far, std::int64_t h, std::int64_t H) {
  using enum Step;
  TwoChunks order(near, far);
  const std::int64_t inward = H - h - 1;  // stages between this one and the middle
  order.repeat(2 * inward, {F0});
  order.repeat(h + 1, {F0, F1});
  order.repeat(inward, {I1, OldestW, F1});
  // The first backward of the middle workers has nothing beside it.
  const std::int64_t first = inward == 0 ? 1 : 0;
  order.repeat(first, {F0, B1, F1, And, B0});
  order.repeat(near.count - 2 * H + h + 1 - first, {F0, And, B1, F1, And, B0});
  order.repeat(inward, {B1, F1, And, B0});
  // The last h + 1 of these backwards are split.
  order.repeat((h + 1) / 2, {B1, B0});
  if (h % 2 == 0) order.repeat(1, {B1, I0});
  order.repeat((h + 1) / 2, {I1, I0});
  order.repeat(inward, {OldestW, I0});
  order.repeat(h + 1, {OldestW});
  return order.take();
}

}  // namespace chimera
