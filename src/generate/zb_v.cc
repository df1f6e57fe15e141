#include "generate/zb_v.h"

#include <algorithm>

#include "generate/shape.h"
#include "generate/two_chunks.h"

namespace chimera {

Schedule zb_v(const PipelineShape& shape) {
  require_sane("zb-v", shape, 6);
  using enum Step;
  const std::int64_t depth = shape.stages;
  const std::int64_t n = std::max(shape.micro_batches, 2 * depth - 1);
  Schedule schedule{"zb-v", 2 * depth, shape.micro_batches, vee_placement(depth), {}};
  for (std::int64_t w = 0; w < depth; ++w) {
    TwoChunks order({.stage = StageId(w), .count = shape.micro_batches},
                    {.stage = StageId(2 * depth - 1 - w), .count = shape.micro_batches});
    order.repeat(2 * (depth - w) - 1, {F0});
    order.repeat(w, {F1, F0});
    order.repeat(depth - w, {F1, I1, W1});
    order.repeat(n - (2 * depth - 1 - w), {F0, I0, W0, F1, I1, W1});
    order.repeat(depth - 1 - w, {I0, W0, F1, I1, W1});
    order.repeat(w, {I0, I1});
    order.repeat(depth - w, {I0, W0});
    order.repeat(w, {W1});
    order.repeat(w, {W0});
    schedule.workers.push_back(order.take());
  }
  return schedule;
}

}  // namespace chimera
