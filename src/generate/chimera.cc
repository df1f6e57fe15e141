// units_of() divides the micro-batches into units and gives each its first slot, lay_out() gives the ops of a unit
// their slots, and in_slot_order() turns the slots of a worker into its list of ops. Schedules with slices have no
// slots: sliced() orders them by list scheduling. ChimeraCounts and the two functions behind it are the performance
// model of the paper; the schedule does not depend on them.

#include "generate/chimera.h"

#include <algorithm>

#include "core/invariant.h"
#include "core/mapped.h"
#include "generate/chimera_placement.h"
#include "generate/generator.h"
#include "generate/list_schedule.h"
#include "generate/shape.h"
#include "generate/sliced_units.h"

namespace chimera {
namespace {

std::int64_t ceil_of(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// Counts ops; `each_` is the number of a pipeline's micro-batches in a unit of D.
class ChimeraCounts {
 public:
  explicit ChimeraCounts(const PipelineShape& shape) : depth_(shape.stages), pipelines_(shape.pipelines) {}

  [[nodiscard]] CriticalOps direct(std::int64_t count) const {
    if (count <= depth_) return {depth_, depth_ + 2 * share(count) - 2};
    // With one pipeline down and one up, each_ is D/2. The first unit then has D forwards and 2D - 2 backwards on the
    // critical path, and each further unit 2 forwards and 2D - 2 backwards: its other forwards fill bubbles of the unit
    // before.
    const std::int64_t units = count / depth_;
    return plus({depth_ + (units - 1) * (depth_ - 2 * each_ + 2), units * (depth_ + 2 * each_ - 2)},
                joined(count % depth_));
  }

  [[nodiscard]] CriticalOps doubling(std::int64_t count, double ratio) const {
    const std::int64_t units = count / (2 * depth_);
    const std::int64_t left = count % (2 * depth_);
    if (units == 0 && left <= depth_) return direct(left);
    const std::int64_t spare = ratio > 2 ? 2 * each_ - 2 : 0;  // Bubbles per unit if a backward exceeds two forwards
    const std::int64_t last = share(left) * pipelines_;  // Micro-batches of a last unit of more than D, in full rounds
    const std::int64_t whole = units == 0 ? last : 2 * depth_;
    CriticalOps counts{whole + each_ - 1, whole + each_ - 1};
    if (units == 0) return counts;
    counts = plus(counts, {(units - 1) * (whole - 2 * spare), (units - 1) * (whole + spare)});
    return plus(counts, left <= depth_ ? joined(left) : CriticalOps{last - 2 * spare, last + spare});
  }

 private:
  [[nodiscard]] std::int64_t share(std::int64_t count) const { return ceil_of(count, pipelines_); }
  /// Counts a last unit of Direct after others.
  [[nodiscard]] CriticalOps joined(std::int64_t count) const {
    if (count == 0) return {};
    return {depth_ - 2 * each_ + 2, depth_ + 2 * share(count) - 2};
  }
  static CriticalOps plus(CriticalOps a, CriticalOps b) { return {a.forwards + b.forwards, a.backwards + b.backwards}; }

  std::int64_t depth_;
  std::int64_t pipelines_;
  std::int64_t each_ = depth_ / pipelines_;
};

/// Performance model of the paper. Source: Li and Hoefler, SC'21, sections 3.2, 3.4 and 3.5.
CriticalOps chimera_critical_ops(const PipelineShape& shape, double ratio) {
  const ChimeraCounts counts(shape);
  if (shape.scale == ScaleMethod::Direct) return counts.direct(shape.micro_batches);
  return counts.doubling((shape.scale == ScaleMethod::Halving ? 2 : 1) * shape.micro_batches, ratio);
}

/// Returns the bubbles that hide all-reduces. With f = 1 and w = min(worker, D-1-worker): D/2-1-w backwards before the
/// last op for the worker's larger stage, and w forwards and backwards around the step's end. None for f > 1, as in the
/// paper.
FreeRegions chimera_free_regions(const PipelineShape& shape, std::int64_t worker) {
  if (shape.pipelines != 2) return {};
  const std::int64_t inner = std::min(worker, shape.stages - 1 - worker);
  return {.backwards = shape.stages / 2 - 1 - inner, .first_stage = shape.stages / 2, .forwards_and_backwards = inner};
}

std::optional<std::string> chimera_refusal(const PipelineShape& shape) {
  if (shape.slices > 1 && shape.scale != ScaleMethod::Direct) return "--slices needs --scale direct";
  // Halving has an F and a B for each half of a micro-batch.
  return chimera_shape_error(shape, shape.scale == ScaleMethod::Halving ? 4 : 2);
}

// A unit occupies a fixed pattern of slots, and units follow each other at a fixed distance, so the first forwards of a
// unit fall into the bubbles among the last backwards of the unit before (SC'21, section 3.5).
/// Micro-batches laid out together: a block of at most D, or two, and the second may be smaller.
struct Unit {
  std::int64_t slot;   // First slot
  std::int64_t first;  // First micro-batch
  std::int64_t count;
  std::int64_t blocks;
};

std::vector<Unit> units_of(const PipelineShape& shape, std::int64_t micro_batches) {
  const std::int64_t depth = shape.stages;
  const bool doubled = shape.scale != ScaleMethod::Direct;
  std::vector<Unit> units;
  std::int64_t slot = 0;
  for (std::int64_t first = 0; first < micro_batches; first += units.back().count) {
    const std::int64_t rest = micro_batches - first;
    const std::int64_t blocks = doubled && rest > depth ? 2 : 1;
    units.push_back({.slot = slot, .first = first, .count = std::min(rest, blocks * depth), .blocks = blocks});
    // S slots for the forwards and as many for the backwards of each block; what sticks out overlaps with the next
    // unit.
    slot += (1 + blocks) * chimera_stages(shape);
  }
  return units;
}

/// Adds a pipeline's ops at a stage. A slot holds one backward, or one forward per block. Slots are counted in halves
/// to separate two forwards.
void lay_out(const Unit& unit, const PipelineShape& shape, ReplicaId replica, StageId stage,
             std::vector<SlottedOp>& ops) {
  const std::int64_t depth = shape.stages;
  const std::int64_t stages = chimera_stages(shape);
  const std::int64_t s = stage.value();
  std::int64_t forwards = 0;
  for (std::int64_t block = 0; block < unit.blocks; ++block) {
    const std::int64_t begin = block * depth;
    const MicroBatchRange share = micro_batches_of_pipeline(replica.value(), shape.pipelines, unit.first + begin,
                                                            std::min(depth, unit.count - begin));
    for (std::int64_t m = 0; m < share.count; ++m, ++forwards) {
      const MicroBatchId id(share.first + m);
      // With two blocks, forwards 2i and 2i + 1 of the pipeline share a slot, each in a half of it.
      const std::int64_t forward = unit.slot + s + 2 * (forwards / unit.blocks);
      const std::int64_t backward = unit.slot + 2 * stages - 1 - s + block * stages + 2 * m;
      ops.push_back({2 * forward + forwards % unit.blocks, {OpKind::Forward, replica, stage, id}});
      ops.push_back({2 * backward, {OpKind::Backward, replica, stage, id}});
    }
  }
}

std::vector<Op> in_slot_order(std::vector<SlottedOp>& slotted) {
  std::ranges::sort(slotted, {}, &SlottedOp::slot);
  const bool is_distinct = std::ranges::adjacent_find(slotted, {}, &SlottedOp::slot) == slotted.end();
  require_invariant(is_distinct, "two ops of a worker have one slot of Chimera");
  return mapped(slotted, &SlottedOp::op);
}

// With slices, forwards of a unit no longer fit between the backwards of Chimera's slots, so the order is greedy. Two
// ranks are tried, and each with more and more activations until the makespan reaches the lower bound `deadline`.
Schedule sliced(const PipelineShape& shape) {
  const ListTask task{
      .placement = chimera_placement(shape), .replica_of = assign_to_pipelines(shape), .slices = shape.slices};
  // The time of a slice's F is 1, of its B 2. `busy` is the time of a worker's ops; `idle` is the part of the bound of
  // docs/slices.md in which a worker must wait, (D/2f - 1)(F + B) of a slice.
  const std::int64_t least = sliced_credits(shape);
  const std::int64_t idle = 3 * (shape.stages / shape.pipelines - 1);
  const std::int64_t busy = 3 * shape.micro_batches * shape.slices * shape.chunks;
  const CreditRange credits{least, least + shape.chunks * std::max(2 * shape.stages, shape.slices)};
  const std::int64_t deadline = busy + idle;
  const auto forwards_first = [](const Op& op, std::int64_t) { return op.kind == OpKind::Forward ? 0 : 1; };
  return pick_better(with_fewest_credits(task, older_then_deeper(shape), credits, deadline),
                     with_fewest_credits(task, forwards_first, credits, deadline))
      .schedule;
}

Schedule chimera(const PipelineShape& shape) {
  if (shape.slices > 1) return sliced(shape);
  const bool halved = shape.scale == ScaleMethod::Halving;
  Schedule schedule = empty_schedule(shape, chimera_placement(shape));
  if (halved) {
    schedule.micro_batches *= 2;
    schedule.micro_batch_scale = 0.5;
  }
  schedule.late_forwards = true;

  const auto units = units_of(shape, schedule.micro_batches);
  std::vector<SlottedOp> slotted;
  for (std::int64_t w = 0; w < shape.stages; ++w) {
    slotted.clear();
    for (const Unit& unit : units) {
      for (std::int64_t r = 0; r < shape.pipelines; ++r)
        for (std::int64_t c = 0; c < shape.chunks; ++c)
          lay_out(unit, shape, ReplicaId(r), stage_on(w, r, c, shape), slotted);
    }
    schedule.workers[static_cast<std::size_t>(w)] = in_slot_order(slotted);
  }
  return schedule;
}

}  // namespace

Generator chimera_entry() {
  const SupportedAxis scale{
      .axis = Axis::Scale, .usual = 0, .planned = [](const PipelineShape& shape) {
        return shape.micro_batches > shape.stages ? std::vector<std::int64_t>{0, 1, 2} : std::vector<std::int64_t>{0};
      }};
  return {
      .name = "chimera",
      .make = chimera,
      .find_shape_error = chimera_refusal,
      .rule = R"(Two pipelines share the workers in opposite directions: the down pipeline holds stage s on worker s,
the up pipeline on worker D-1-s. In slots of equal length, micro-batch m of a pipeline runs F at stage s in slot s+2m
and B in slot 2D-1-s+2m. For even D no two ops of a worker share a slot. Weights are held twice; gradients are summed
over replicas.

N > D micro-batches run in units (`--scale`). *Direct*: units of D, each 2D slots after the one before, so that its
first forwards fill bubbles among the last backwards of the unit before. *Doubling*: units of 2D with two forwards in a
slot; the second D backwards come D slots after the first D, and the next unit 3D slots after this one. A rest of at
most D is a unit of direct. *Halving*: doubling with 2N micro-batches of half the size. A unit's micro-batches are dealt
to the pipelines in equal parts; an odd one more goes down.

With 2f pipelines (f divides D/2), down pipeline i holds stage s on worker (iD/f+s) mod D, up pipeline i the reverse.
With v chunks each pipeline has S = vD stages, placed down and up the workers in waves, and the slots are the same with
S for D (v = 2 is BitPipe, Wu et al., 2024). With k slices a greedy rule orders the ops, with as few activations as let
it come closest to the lower bound (`docs/slices.md`). Doubling with f > 1 or v > 1 is ours; otherwise its order is the
paper's.

| case | makespan |
| --- | --- |
| N = D | D F + (2D-2) B |
| N < D, even (odd N as N+1) | D F + (D+N-2) B |
| N = D, 2f pipelines | D F + (D+D/f-2) B |
| N = K D, direct concatenation | (D+2(K-1)) F + (2D-2) K B |
| N = K D, direct, 2f pipelines | (D+(K-1)(D-D/f+2)) F + K (D+D/f-2) B |
| N = 2 K D, doubling, F ≤ B ≤ 2F | (5D/2-1)(F+B) + (K-1) 2D (F+B) |
| N = 2 K D, doubling, 2F ≤ B ≤ 3F | (5D/2-1)(F+B) + (K-1) (4F+(3D-2) B) |
| N = K D, direct, 2f pipelines of v chunks | N(F+B) + (D/f-2)(B+(K-1)(B-F))/v |

For N ≥ D, worker w holds D/2+1+min(w, D-1-w) activations (doubling: D more); with v chunks and f = 1 it holds
D-D/2v+(min(w, D-1-w)+1)/v. If F = B, the bubble ratio is (D-2)/(2N+D-2). SC'21: figures 3 (basic unit), 7 (N > D) and
8 (2f pipelines).)",
      .constraints = "D even, any N, v, k, f divides D/2",
      .closed_form = "N(F+B) + (D/f-2)B/v at N = D",
      .activations = "D/2+1 .. D (v = 1, f = 1)",
      .source = "Li and Hoefler, SC'21",
      .figure = {.stages = 4, .micro_batches = 4},
      .axes = {bidirectional_pipelines(), bidirectional_chunks(), scale, slices()},
      .stages_per_worker = [](const PipelineShape& shape) { return shape.chunks; },
      .replicas = [](const PipelineShape& shape) { return shape.pipelines; },
      .paper = PaperModel{.critical_ops = chimera_critical_ops, .free_regions = chimera_free_regions}};
}

}  // namespace chimera
