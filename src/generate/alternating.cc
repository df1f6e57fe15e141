// Schedules of one replica in which a worker runs some warm-up forwards, and then a forward and a backward in turn.
// They differ in the number of warm-up forwards, in the chunks of the model on a worker, and in whether a backward is
// split. 1F1B on the first two of four workers, with six micro-batches:
//
//   worker 0   F0 F1 F2 | F3 B0 F4 B1 F5 B2 | B3 B4 B5      warm-up, turns, and the remaining backwards
//   worker 1   F0 F1 | F2 B0 F3 B1 F4 B2 F5 B3 | B4 B5
//
// GPipe is the extreme with all forwards in the warm-up. PipeDream repeats 1F1B without a flush: its entries make one
// step, which passes/unroll.h repeats.

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "generate/entries.h"
#include "generate/shape.h"

namespace chimera {
namespace {

constexpr std::int64_t kAllForwards = std::numeric_limits<std::int64_t>::max();

/// The rule of a worker.
struct Alternation {
  std::int64_t warm_up = 0;                          // Forwards before the first turn
  std::optional<std::int64_t> delay = std::nullopt;  // Split backwards: number of I that W is behind
  bool pairs = false;                                // Forward and backward of a turn form a pair
};

/// How forwards and backwards of a worker go through its chunks: `group` micro-batches pass all chunks, forwards from
/// the first and backwards from the last, before the next group does. Chunk c of worker w is stage cD + w.
struct Rounds {
  std::int64_t chunks = 1;
  std::int64_t group = 1;
  std::int64_t slices = 1;  // Only with one chunk
};

/// Makes a schedule; `rule(w)` returns the Alternation of worker w.
template <class Rule>
Schedule alternating(const PipelineShape& shape, const Rounds& rounds, const Rule& rule) {
  Schedule schedule = empty_schedule(shape, loop_placement(shape.stages, rounds.chunks));
  schedule.slices = rounds.slices;
  const std::int64_t count = shape.micro_batches * rounds.slices * rounds.chunks;  // Forwards of a worker
  const std::int64_t round = rounds.group * rounds.chunks;
  for (std::int64_t w = 0; w < shape.stages; ++w) {
    auto& ops = schedule.workers[static_cast<std::size_t>(w)];
    const auto add = [&](OpKind kind, std::int64_t k) {
      // A round takes a group through all chunks. With two chunks and groups of four, forwards 0 to 3 of a worker are
      // of chunk 0 and micro-batches 0 to 3, forwards 4 to 7 of chunk 1 and the same micro-batches, and forward 8
      // begins the next round with micro-batch 4 at chunk 0.
      const std::int64_t turn = k % round / rounds.group;
      const std::int64_t chunk = kind == OpKind::Forward ? turn : rounds.chunks - 1 - turn;
      const std::int64_t position = k / round * rounds.group + k % rounds.group;
      ops.push_back(sliced_op(kind, ReplicaId(0), StageId(chunk * shape.stages + w), position, rounds.slices));
    };
    const Alternation worker = rule(w);
    const std::int64_t warm_up = std::min(worker.warm_up, count);
    const std::int64_t delay = std::min(worker.delay.value_or(0), count);
    for (std::int64_t k = 0; k < warm_up; ++k) add(OpKind::Forward, k);
    for (std::int64_t k = 0; k < count; ++k) {
      // The forwards end before the backwards, so the last turns have a backward only.
      if (warm_up + k < count) {
        add(OpKind::Forward, warm_up + k);
        ops.back().paired = worker.pairs;
      }
      add(worker.delay ? OpKind::BackwardInput : OpKind::Backward, k);
      if (worker.delay && k >= delay) add(OpKind::BackwardWeight, k - delay);
    }
    // Weight gradients that were delayed come last: nothing but the update waits for them.
    for (std::int64_t k = count - delay; k < count; ++k) add(OpKind::BackwardWeight, k);
  }
  return schedule;
}

Schedule one_f_one_b(const PipelineShape& shape) {
  // The forwards that fill the workers below, and those of the other slices of micro-batch 0: its backward begins with
  // its last slice.
  return alternating(shape, {.slices = shape.slices},
                     [&](std::int64_t s) { return Alternation{.warm_up = shape.stages - 1 - s + shape.slices - 1}; });
}

/// `fill` is 1 or 2: the slices in flight, in multiples of D, beside the k-1 that complete a micro-batch.
Schedule zero_bubble(const PipelineShape& shape, std::int64_t fill, std::int64_t slices) {
  // Warm-up and delay have the same sum on all workers, and so have the activations that they keep.
  return alternating(shape, {.slices = slices}, [&](std::int64_t s) {
    return Alternation{.warm_up = fill * (shape.stages - 1 - s) + slices - 1, .delay = fill * s};
  });
}

std::int64_t num_groups(const PipelineShape& shape) {
  // The number of rounds of PyTorch's ScheduleInterleaved1F1B.
  return std::max<std::int64_t>(1, shape.micro_batches / shape.stages);
}

/// Makes an interleaved schedule; `rule(w, e)` returns the Alternation of worker w, whose last chunk has its first
/// forward after e others.
template <class Rule>
Schedule interleaved(const PipelineShape& shape, const Rule& rule) {
  const std::int64_t group = shape.micro_batches / num_groups(shape);
  return alternating(shape, {.chunks = shape.chunks, .group = group},
                     [&](std::int64_t w) { return rule(w, (shape.chunks - 1) * group); });
}

template <std::int64_t kOpsEach>
std::optional<std::string> interleaved_refusal(const PipelineShape& shape) {
  if (auto refused = loop_shape_error(shape, kOpsEach)) return refused;
  if (shape.micro_batches % num_groups(shape) == 0) return std::nullopt;
  return fmt::format(
      "--micro-batches must be a multiple of N div D = {}, not {} (N below D or a multiple of D always is)",
      num_groups(shape), shape.micro_batches);
}

std::int64_t num_chunks(const PipelineShape& shape) { return shape.chunks; }

SupportedAxis looped_chunks() { return supported(Axis::Chunks, 2, {2, 4}); }

/// Equation 1 of 1F1B, and of GPipe, which has the same critical path.
PaperModel one_f_one_b_model() {
  return {.critical_ops = [](const PipelineShape& shape, double) -> CriticalOps {
            // The last worker starts after D-1 forwards and runs N forwards and backwards; D-1 backwards follow on the
            // way up.
            const std::int64_t each = shape.micro_batches + shape.stages - 1;
            return {each, each};
          },
          // Worker w waits for w forwards at the start and w backwards at the end.
          .free_regions = [](const PipelineShape&, std::int64_t worker) -> FreeRegions {
            return {.forwards_and_backwards = worker};
          }};
}

/// 1F1B starts each step with weight version 0, and therefore still has the makespan of 1F1B.
Schedule without_flush(const PipelineShape& shape, const AsynchronousUpdates& updates) {
  Schedule schedule = one_f_one_b({.stages = shape.stages, .micro_batches = shape.micro_batches});
  schedule.updates = updates;
  return schedule;
}

Schedule pipedream(const PipelineShape& shape) {
  Schedule schedule = without_flush(shape, {.micro_batches = 1, .versions = shape.stages});
  for (auto& ops : schedule.workers) {
    for (Op& op : ops) {
      // The worker of stage s runs D-1-s forwards ahead of its backwards. So m - (D-1-s) backwards, and as many
      // updates, come before the forward of micro-batch m.
      const std::int64_t behind = shape.stages - 1 - op.stage.value();
      op.weight_version = static_cast<std::int32_t>(std::max<std::int64_t>(0, op.micro_batch.value() - behind));
    }
  }
  return schedule;
}

std::optional<std::string> pipedream_two_bw_refusal(const PipelineShape& shape) {
  if (auto refused = shape_error(shape)) return refused;
  if (shape.micro_batches >= shape.stages) return std::nullopt;
  return fmt::format("--micro-batches must be at least --stages = {}, not {} (an update takes D or more)", shape.stages,
                     shape.micro_batches);
}

/// Without a flush no worker waits.
CriticalOps ops_without_flush(const PipelineShape& shape, double) { return {shape.micro_batches, shape.micro_batches}; }

}  // namespace

Generator gpipe_entry() {
  return {.name = "gpipe",
          .make =
              [](const PipelineShape& shape) {
                return alternating(shape, {.slices = shape.slices},
                                   [](std::int64_t) { return Alternation{.warm_up = kAllForwards}; });
              },
          .find_shape_error = reject_bad_counts<2>,
          .rule =
              "All forwards, then all backwards in the same order of micro-batches, as in PyTorch. The backwards of a "
              "micro-batch begin with its last slice.",
          .constraints = "any D, N, k",
          .closed_form = "(N+(D-1)/k)(F+B)",
          .activations = "N",
          .source = "Huang et al., NeurIPS'19",
          .figure = {.stages = 4, .micro_batches = 4},
          .axes = {slices()},
          .paper = one_f_one_b_model()};
}

Generator one_f_one_b_entry() {
  return {.name = "1f1b",
          .make = one_f_one_b,
          .find_shape_error = reject_bad_counts<2>,
          .rule =
              "min(D-1-s, N) warm-up forwards, then one forward and one backward alternately, then the remaining "
              "backwards. GPipe's time with fewer activations; DAPPLE's order and Megatron's default. With k slices "
              "(Seq1F1B), each op is of a slice, and k-1 more forwards warm up.",
          .constraints = "any D, N, k",
          .closed_form = "(N+(D-1)/k)(F+B)",
          .activations = "min((D-1-s)/k+1, N)",
          .source = "Fan et al., PPoPP'21 (DAPPLE); slices: Sun et al., arXiv 2406.03488 (Seq1F1B)",
          .axes = {slices()},
          .paper = one_f_one_b_model()};
}

Generator looped_bfs_entry() {
  return {.name = "looped-bfs",
          .make =
              [](const PipelineShape& shape) {
                return alternating(shape, {.chunks = shape.chunks, .group = shape.micro_batches},
                                   [](std::int64_t) { return Alternation{.warm_up = kAllForwards}; });
              },
          .find_shape_error = [](const PipelineShape& shape) { return loop_shape_error(shape, 2); },
          .rule =
              "Each worker holds v stages: chunk c of worker r is stage cD+r. A worker runs all forwards of its first "
              "chunk, then of the next; then all backwards from its last chunk to its first. It visits each stage "
              "twice per step, which suits sharded weights. Otherwise it is GPipe in v chunks. Backwards run in the "
              "order of the samples, in PyTorch in the reverse order.",
          .constraints = "any D, N, v",
          .closed_form = "((v-1)max(N,D)+N+D-1)(F+B)/v",
          .activations = "N",
          .source = "Lamy-Poirier, MLSys'23",
          .figure = {.stages = 4, .micro_batches = 4},
          .axes = {looped_chunks()},
          .stages_per_worker = num_chunks};
}

Generator interleaved_one_f_one_b_entry() {
  return {.name = "interleaved-1f1b",
          .make =
              [](const PipelineShape& shape) {
                return interleaved(shape, [&](std::int64_t w, std::int64_t earlier) {
                  return Alternation{.warm_up = 2 * (shape.stages - 1 - w) + earlier};
                });
              },
          .find_shape_error = interleaved_refusal<2>,
          .rule =
              "Each worker holds v stages: chunk c of worker r is stage cD+r. N micro-batches form max(1, N div D) "
              "groups of equal size g (D if D divides N), as in PyTorch. A worker runs the forwards of a group at its "
              "first chunk, then at its second, and so on, then the next group; its backwards likewise from the last "
              "chunk to the first. Worker r starts with min(2(D-1-r)+(v-1)g, vN) forwards, then alternates forward and "
              "backward. Fewer bubbles, v times the messages.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+(D-1)/v stages",
          .source = "Narayanan et al., SC'21 (Megatron-LM)",
          .axes = {looped_chunks()},
          .stages_per_worker = num_chunks};
}

Generator combined_one_f_one_b_entry() {
  return {.name = "combined-1f1b",
          .make =
              [](const PipelineShape& shape) {
                return interleaved(shape, [&](std::int64_t w, std::int64_t earlier) {
                  return Alternation{.warm_up = 2 * (shape.stages - 1 - w) + earlier + 1, .pairs = true};
                });
              },
          .find_shape_error = interleaved_refusal<2>,
          .rule =
              "Interleaved 1F1B with one more warm-up forward, so that the forward and backward of each later turn are "
              "independent and form a pair. Megatron-LM overlaps the communication of expert parallelism so. If a pair "
              "takes F&B together and N ≥ 2D, the makespan is (Nv-(v-1)D-1)(F+B-F&B)/v shorter.",
          .constraints = "N < D or a multiple of N div D",
          .closed_form = "N(F+B) + (D-1)(F+B)/v at D | N",
          .activations = "D+D/v stages",
          .source = "NVIDIA, Megatron-LM, 2025",
          .axes = {looped_chunks()},
          .stages_per_worker = num_chunks};
}

Generator interleaved_zb_entry() {
  return {
      .name = "interleaved-zb",
      .make =
          [](const PipelineShape& shape) {
            return interleaved(shape, [&](std::int64_t w, std::int64_t earlier) {
              return Alternation{.warm_up = shape.stages - 1 - w + earlier, .delay = w};
            });
          },
      .find_shape_error = interleaved_refusal<3>,
      .rule =
          "Interleaved 1F1B with B split into I and W. Worker r starts with (v-1)g+D-1-r forwards, as few as ZB-H1, "
          "and delays its first r weight gradients, which fill bubbles. The order equals PyTorch's "
          "ScheduleInterleavedZeroBubble. For F = I = W and D | N no schedule of one replica in loop or wave "
          "placement is faster.",
      .constraints = "N < D or a multiple of N div D",
      .closed_form = "N(F+I+W) + (D-1)max(F,I,F+I-W)/v at D | N",
      .activations = "D at D | N",
      .source = "Qi et al., ICLR'24 (ZB-H1); PyTorch",
      .figure = {.stages = 4, .micro_batches = 4},
      .axes = {looped_chunks()},
      .stages_per_worker = num_chunks};
}

Generator zb_h1_entry() {
  return {.name = "zb-h1",
          .make = [](const PipelineShape& shape) { return zero_bubble(shape, 1, shape.slices); },
          .find_shape_error = reject_bad_counts<3>,
          .rule =
              "1F1B with B split into I and W. I continues at once, and W fills time that would be a bubble: stage s "
              "delays its first s weight gradients to the end of the step. No worker holds more activations than "
              "1F1B's first stage. If W ≤ F and W ≤ I, the makespan is N(F+I+W)+(D-1)(F+I-W)/k. With k slices each "
              "op is of a slice, and k-1 more forwards warm up.",
          .constraints = "any D, N, k",
          .closed_form = "inner bubble (D-1)(F+I-W)/k, N >= D",
          .activations = "min(1 + (D-1)/k, N)",
          .source = "Qi et al., ICLR'24; slices: ours",
          .axes = {slices()}};
}

Generator zb_h2_entry() {
  return {.name = "zb-h2",
          .make = [](const PipelineShape& shape) { return zero_bubble(shape, 2, 1); },
          .find_shape_error = reject_bad_counts<3>,
          .rule =
              "ZB-H1 with nearly twice the warm-up forwards. At equal op times there is no bubble between a worker's "
              "first and last op, but a worker holds 2D-1 activations. The makespan of a flushed step still contains "
              "(D-1)F.",
          .constraints = "any D, N",
          .closed_form = "inner bubble (D-1)(F+I-2W), N >= 2D-1",
          .activations = "min(2D-1, N)",
          .source = "Qi et al., ICLR'24"};
}

Generator pipedream_two_bw_entry() {
  return {.name = "pipedream-2bw",
          .make =
              [](const PipelineShape& shape) {
                return without_flush(shape, {.micro_batches = shape.micro_batches, .versions = 2, .delay = 1});
              },
          .find_shape_error = pipedream_two_bw_refusal,
          .rule =
              "1F1B without a flush, with one update per N ≥ D micro-batches. Step t uses version max(0, t-1) on "
              "every stage, so two versions suffice.",
          .constraints = "N >= D",
          .closed_form = "(N+D-1)(F+B), no flush",
          .activations = "D-s",
          .source = "Narayanan et al., ICML'21",
          .synchronous = false,
          .paper = PaperModel{.critical_ops = ops_without_flush}};
}

Generator pipedream_entry() {
  return {.name = "pipedream",
          .make = pipedream,
          .find_shape_error = reject_bad_counts<2>,
          .rule =
              "1F1B without a flush. A stage updates after each backward. A micro-batch's backward uses the same "
              "weights as its forward, so stage s keeps up to D-s versions. Micro-batch m uses version max(0, "
              "m-(D-1-s)) on stage s.",
          .constraints = "any D, N",
          .closed_form = "(N+D-1)(F+B), no flush",
          .activations = "min(D-s, N)",
          .source = "Narayanan et al., SOSP'19",
          .synchronous = false,
          .paper = PaperModel{.critical_ops = ops_without_flush}};
}

}  // namespace chimera
