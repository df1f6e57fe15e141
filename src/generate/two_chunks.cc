// V-Half and V-Min repeat a pattern of slots (wave_pattern()), and ZB-V follows phases (zb_v()). The phases are written
// with TwoChunks, which counts the ops of both stages of a worker, so that a step says only "the next forward of chunk
// 0". dualpipe.cc uses it, too.

#include "generate/two_chunks.h"

#include <algorithm>
#include <functional>

#include "generate/entries.h"
#include "generate/shape.h"

namespace chimera {
namespace {

std::size_t chunk_of(ChunkStep step) { return static_cast<std::size_t>(step) % 2; }

OpKind kind_of(ChunkStep step) {
  using enum OpKind;
  // [ChunkStep]; And writes no op.
  constexpr std::array kKinds = {Forward,       Forward,        Backward,       Backward,      BackwardInput,
                                 BackwardInput, BackwardWeight, BackwardWeight, BackwardWeight};
  return kKinds[static_cast<std::size_t>(step)];
}

/// Slots of micro-batch 0 on worker r.
struct PatternSlots {
  std::int64_t forward_down = 0;   // F of stage r
  std::int64_t forward_up = 0;     // F of stage 2D-1-r
  std::int64_t gradient_up = 0;    // I of stage 2D-1-r
  std::int64_t gradient_down = 0;  // I of stage r
};

/// Returns the schedule of a slot pattern (a building block of Qi et al., NeurIPS'24). Micro-batch m has the slots of
/// micro-batch 0 plus 6m, because a worker runs six ops per micro-batch; so the four slots must differ modulo 6. Each
/// free slot takes the W of the oldest pending I, and the rest come last.
Schedule wave_pattern(const PipelineShape& shape,
                      const std::function<PatternSlots(std::int64_t depth, std::int64_t worker)>& slots_of) {
  constexpr std::int64_t kPeriod = 6;
  const std::int64_t depth = shape.stages;
  return ordered_schedule(shape, wave_placement(depth, 2), [&](std::int64_t r) {
    const PatternSlots slots = slots_of(depth, r);
    const StageId down(r);
    const StageId up(2 * depth - 1 - r);
    std::vector<SlottedOp> ops;
    for (std::int64_t m = 0; m < shape.micro_batches; ++m) {
      const auto add = [&](std::int64_t slot, OpKind kind, StageId stage) {
        ops.push_back({slot + kPeriod * m, {kind, ReplicaId(0), stage, MicroBatchId(m)}});
      };
      add(slots.forward_down, OpKind::Forward, down);
      add(slots.forward_up, OpKind::Forward, up);
      add(slots.gradient_up, OpKind::BackwardInput, up);
      add(slots.gradient_down, OpKind::BackwardInput, down);
    }
    return with_weight_gradients(std::move(ops));
  });
}

// The phases of Qi et al., NeurIPS'24: warm-up down and up, a steady state of six ops per micro-batch, and a drain in
// which the delayed weight gradients fill the bubbles.
Schedule zb_v(const PipelineShape& shape) {
  using enum ChunkStep;
  const std::int64_t depth = shape.stages;
  // The phases need 2D - 1 micro-batches. With fewer, steps beyond the last one write nothing.
  const std::int64_t n = std::max(shape.micro_batches, 2 * depth - 1);
  return ordered_schedule(shape, wave_placement(depth, 2), [&](std::int64_t w) {
    TwoChunks order({.stage = StageId(w), .count = shape.micro_batches},
                    {.stage = StageId(2 * depth - 1 - w), .count = shape.micro_batches});
    // Warm-up: down; down and up in turn; up with the first gradients.
    order.repeat(2 * (depth - w) - 1, {F0});
    order.repeat(w, {F1, F0});
    order.repeat(depth - w, {F1, I1, W1});
    order.repeat(n - (2 * depth - 1 - w), {F0, I0, W0, F1, I1, W1});
    // From here on, forwards run out: first those of chunk 0, then those of chunk 1.
    order.repeat(depth - 1 - w, {I0, W0, F1, I1, W1});
    order.repeat(w, {I0, I1});
    order.repeat(depth - w, {I0, W0});
    // Worker w has delayed w weight gradients of each chunk.
    order.repeat(w, {W1});
    order.repeat(w, {W0});
    return order.take();
  });
}

// The slots are from Qi et al., NeurIPS'24: a forward moves down at half speed, which leaves slots between
// the ops of neighbors for the way back.
Schedule v_half(const PipelineShape& shape) {
  return wave_pattern(shape, [](std::int64_t depth, std::int64_t r) -> PatternSlots {
    const std::int64_t shift = depth % 2 == 0 ? 3 : 0;  // Keeps the four slots distinct modulo six
    return {.forward_down = 2 * r,
            .forward_up = 3 * depth - 2 - r,
            .gradient_up = 3 * depth - 1 + shift + 2 * r,
            .gradient_down = 6 * depth - 2 + shift - r};
  });
}

Schedule v_min(const PipelineShape& shape) {
  return wave_pattern(shape, [](std::int64_t depth, std::int64_t r) -> PatternSlots {
    const std::int64_t shift = depth % 3 == 0 ? 2 : 0;  // Keeps the four slots distinct modulo six
    return {.forward_down = r,
            .forward_up = 2 * depth - 1 - r,
            .gradient_up = 2 * depth + shift + r,
            .gradient_down = 4 * depth - 1 + shift - r};
  });
}

}  // namespace

TwoChunks::TwoChunks(const Chunk& chunk0, const Chunk& chunk1) : progress_{Progress{chunk0}, Progress{chunk1}} {
  ops_.reserve(static_cast<std::size_t>(3 * (chunk0.count + chunk1.count)));
}

std::int64_t& TwoChunks::next_of(ChunkStep step) {
  auto& next = progress_[chunk_of(step)].next;
  switch (kind_of(step)) {
    case OpKind::Forward: return next[kForward];
    case OpKind::BackwardWeight: return next[kWeight];
    default: return next[kBackward];
  }
}

// Counters advance also beyond the last micro-batch, as if the ops were written, so that a rule for many micro-batches
// gives the order of fewer by leaving ops out.
void TwoChunks::repeat(std::int64_t times, std::initializer_list<ChunkStep> steps) {
  for (std::int64_t done = 0; done < times; ++done) {
    const std::size_t before = ops_.size();
    for (const ChunkStep step : steps) write(step);
    if (ops_.size() != before) continue;
    for (const ChunkStep step : steps)  // The remaining rounds would write nothing either
      if (step != ChunkStep::OldestW && step != ChunkStep::And) next_of(step) += times - done - 1;
    return;
  }
}

void TwoChunks::write(ChunkStep step) {
  if (step == ChunkStep::OldestW) return write_oldest_weight_gradient();
  if (step == ChunkStep::And) {
    ops_.back().paired = true;
    return;
  }
  const Chunk& chunk = progress_[chunk_of(step)].chunk;
  const std::int64_t m = next_of(step)++;
  if (m < chunk.count) ops_.push_back({kind_of(step), chunk.replica, chunk.stage, MicroBatchId(chunk.first + m)});
}

// `oldest_` only moves forward: W follow the order of their I, so an I is used once.
void TwoChunks::write_oldest_weight_gradient() {
  while (oldest_ < ops_.size() && ops_[oldest_].kind != OpKind::BackwardInput) ++oldest_;
  if (oldest_ == ops_.size()) return;
  Op op = ops_[oldest_++];
  op.kind = OpKind::BackwardWeight;
  ops_.push_back(op);
}

Generator zb_v_entry() {
  return {.name = "zb-v",
          .make = zb_v,
          .find_shape_error = reject_bad_counts<6>,
          .rule =
              "Each worker holds stages r and 2D-1-r, so a micro-batch returns to the worker where it started. Split "
              "backward; as many activations as 1F1B, with one replica. For N ≥ 2D-1 and I ≥ F the longest inner "
              "bubble is max((D-1)(I-W), (D-1)(I-F)/2). N < 2D-1 has the order of 2D-1 micro-batches without the "
              "missing ones.",
          .constraints = "any D, N",
          .closed_form = "N(F+I+W)+(D-1)max(I/2, I-W)",
          .activations = "2D halves",
          .source = "Qi et al., NeurIPS'24",
          .stages_per_worker = two_stages};
}

Generator v_half_entry() {
  return {.name = "v-half",
          .make = v_half,
          .find_shape_error = reject_bad_counts<6>,
          .rule =
              "Stages as in ZB-V. One pattern of F and I repeats every six slots: forwards move down the workers at "
              "half speed and up at full speed, and so do the gradients on their way back. W fills the free slots. "
              "Every worker holds about half the activations of 1F1B's first worker. Other times do not slow the "
              "steady state if W+2I ≥ 2F and W+2F ≥ 2I.",
          .constraints = "any D, N",
          .closed_form = "bubble 7D/4-1 (even D), 7(D-1)/4 (odd), F=I=W=1",
          .activations = "(D+2) div 2",
          .source = "Qi et al., NeurIPS'24",
          .figure = {.stages = 4, .micro_batches = 4},
          .stages_per_worker = two_stages};
}

Generator v_min_entry() {
  return {.name = "v-min",
          .make = v_min,
          .find_shape_error = reject_bad_counts<6>,
          .rule =
              "Like V-Half, but a micro-batch moves down, up and back without waiting, one every six slots. A third "
              "of 1F1B's activations, but no slack for latency or unequal op times: all ops of a micro-batch are on "
              "one path.",
          .constraints = "any D, N",
          .closed_form = "bubble 2D-5/2 (2D-3/2 where 3 divides D), F=I=W=1",
          .activations = "(D+4) div 3",
          .source = "Qi et al., NeurIPS'24",
          .figure = {.stages = 4, .micro_batches = 4},
          .stages_per_worker = two_stages};
}

}  // namespace chimera
