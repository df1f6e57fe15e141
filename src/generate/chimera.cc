#include "generate/chimera.h"

#include <algorithm>
#include <cassert>

#include "generate/chimera_placement.h"

namespace chimera {
namespace {

struct SlottedOp {
  std::int64_t slot;  // in halves
  Op op;
};

/// The micro-batches that are laid out together, in one block of at most D, or two of which the second may be smaller.
struct Unit {
  std::int64_t slot;   // its first
  std::int64_t first;  // micro-batch
  std::int64_t count;
  std::int64_t blocks;
};

/// Units one after the other: the next one begins where its forwards fall among the last backwards of this one.
std::vector<Unit> units_of(std::int64_t depth, std::int64_t micro_batches, bool doubled) {
  std::vector<Unit> units;
  std::int64_t slot = 0;
  for (std::int64_t first = 0; first < micro_batches; first += units.back().count) {
    const std::int64_t rest = micro_batches - first;
    const std::int64_t blocks = doubled && rest > depth ? 2 : 1;
    units.push_back({slot, first, std::min(rest, blocks * depth), blocks});
    slot += (1 + blocks) * depth;
  }
  return units;
}

/// Writes down a pipeline's ops of one unit at one stage. Slots hold one backward, or as many forwards as the unit has
/// blocks; they are counted in halves to tell the two forwards apart.
void lay_out(const Unit& unit, std::int64_t depth, std::int64_t pipelines, ReplicaId replica, StageId stage,
             std::vector<SlottedOp>& ops) {
  const std::int64_t s = stage.value();
  std::int64_t forwards = 0;
  for (std::int64_t block = 0; block < unit.blocks; ++block) {
    const std::int64_t begin = block * depth;
    const Share share = share_of(replica.value(), pipelines, unit.first + begin, std::min(depth, unit.count - begin));
    for (std::int64_t m = 0; m < share.count; ++m, ++forwards) {
      const MicroBatchId id(share.first + m);
      const std::int64_t forward = unit.slot + s + 2 * (forwards / unit.blocks);
      const std::int64_t backward = unit.slot + 2 * depth - 1 - s + begin + 2 * m;
      ops.push_back({2 * forward + forwards % unit.blocks, {OpKind::Forward, replica, stage, id}});
      ops.push_back({2 * backward, {OpKind::Backward, replica, stage, id}});
    }
  }
}

/// The ops by slot, of which no two share one. Slots are few more than ops unless N is far below D, so that mostly each
/// op goes straight to its place.
std::vector<Op> in_slot_order(std::vector<SlottedOp>& slotted, std::vector<const Op*>& at) {
  std::vector<Op> ops;
  if (slotted.empty()) return ops;
  const auto by_slot = [](const SlottedOp& a, const SlottedOp& b) { return a.slot < b.slot; };
  const auto [first, last] = std::minmax_element(slotted.begin(), slotted.end(), by_slot);
  const std::int64_t begin = first->slot;
  const auto span = static_cast<std::size_t>(last->slot - begin) + 1;
  ops.reserve(slotted.size());
  if (span > 8 * slotted.size()) {
    std::sort(slotted.begin(), slotted.end(), by_slot);
    for (const SlottedOp& entry : slotted) ops.push_back(entry.op);
    return ops;
  }
  at.assign(span, nullptr);
  for (const SlottedOp& entry : slotted) {
    const Op*& place = at[static_cast<std::size_t>(entry.slot - begin)];
    assert(place == nullptr);
    place = &entry.op;
  }
  for (const Op* op : at) {
    if (op != nullptr) ops.push_back(*op);
  }
  return ops;
}

}  // namespace

Schedule chimera(const PipelineShape& shape) {
  require_chimera_shape("chimera", shape, shape.scale == ScaleMethod::Halving ? 4 : 2);
  const std::int64_t depth = shape.stages;
  const bool halved = shape.scale == ScaleMethod::Halving;
  Schedule schedule{
      "chimera", depth, shape.micro_batches * (halved ? 2 : 1), chimera_placement(depth, shape.pipelines / 2), {}};
  if (halved) schedule.micro_batch_scale = 0.5;

  const auto units = units_of(depth, schedule.micro_batches, shape.scale != ScaleMethod::Direct);
  std::vector<SlottedOp> slotted;
  std::vector<const Op*> at;
  for (std::int64_t w = 0; w < depth; ++w) {
    slotted.clear();
    for (const Unit& unit : units) {
      for (std::int64_t r = 0; r < shape.pipelines; ++r) {
        lay_out(unit, depth, shape.pipelines, ReplicaId(r), stage_on(w, r, depth, shape.pipelines / 2), slotted);
      }
    }
    schedule.workers.push_back(in_slot_order(slotted, at));
  }
  return schedule;
}

}  // namespace chimera
