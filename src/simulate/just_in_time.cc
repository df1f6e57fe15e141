#include "simulate/just_in_time.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "schedule/dependencies.h"

namespace chimera {

Timeline forwards_just_in_time(const Schedule& schedule, const CostModel& costs, Timeline timeline) {
  const OpTable table(schedule);
  const auto timed = [&](OpIndex op) -> TimedOp& {
    const std::size_t worker = table.worker(op);
    return timeline.workers[worker].ops[op - table.first(worker)];
  };
  std::vector<OpIndex> forwards;
  for (OpIndex op = 0; op < table.size(); ++op) {
    const bool together = costs.pair && table.op(op).paired;  // its backward would have to move, too
    if (table.op(op).kind == OpKind::Forward && !together) forwards.push_back(op);
  }
  // The ops that limit a forward start later, so they have been moved before it is looked at.
  std::sort(forwards.begin(), forwards.end(), [&](OpIndex a, OpIndex b) { return timed(a).start > timed(b).start; });
  for (const OpIndex op : forwards) {
    const OpIndex next = op + 1;
    const OpIndex consumer = table.consumer(table.op(op));
    double end = std::numeric_limits<double>::infinity();
    if (next != table.first(table.worker(op) + 1)) end = timed(next).start;
    if (consumer != kNoOp) {
      const double latency = table.worker(consumer) == table.worker(op) ? 0 : costs.latency;
      end = std::min(end, timed(consumer).start - latency);
    }
    if (!std::isfinite(end)) continue;
    TimedOp& moved = timed(op);
    const double delay = std::max(0.0, end - moved.end);
    moved = {moved.start + delay, moved.end + delay};
  }
  return timeline;
}

}  // namespace chimera
