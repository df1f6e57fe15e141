#include "simulate/copy_engines.h"

#include <algorithm>
#include <set>

#include "schedule/offload.h"

namespace chimera {

CopyEngines::CopyEngines(const Schedule& schedule, const CostTable& costs) {
  const std::set<StageId>& stages = costs.offloaded_stages();
  if (!stages.empty()) engines_.resize(schedule.workers.size());
  for (std::size_t w = 0; w < engines_.size(); ++w) {
    const std::vector<Op>& ops = schedule.workers[w];
    Engine& engine = engines_[w];
    engine.of_ops.assign(ops.size(), -1);
    for (const OffloadedForward& each : offloaded_forwards(ops, stages, costs.pairs())) {
      engine.of_ops[each.forward] = engine.of_ops[each.backward] = static_cast<std::int32_t>(engine.copies.size());
      engine.copies.push_back({each.forward, each.backward});
      engine.seconds.push_back(costs.offload(ops[each.forward]));
      engine.loads.push_back(each.load);
    }
  }
}

double CopyEngines::end_ops(std::size_t worker, std::size_t begin, std::size_t end, double time) {
  if (engines_.empty()) return time;
  Engine& engine = engines_[worker];
  for (std::size_t i = begin; i < end; ++i) {
    if (engine.of_ops[i] < 0) continue;
    const auto copy = static_cast<std::size_t>(engine.of_ops[i]);
    if (engine.copies[copy].forward != i) continue;
    time = std::max(time, engine.out_end);
    engine.free = std::max(engine.free, time) + engine.seconds[copy];
    engine.out_end = engine.copies[copy].out_end = engine.free;
  }
  for (; engine.next_load < engine.loads.size() && engine.loads[engine.next_load] <= end; ++engine.next_load) {
    OffloadCopies& copies = engine.copies[engine.next_load];
    time = copies.load = std::max(time, copies.out_end);
    engine.free = copies.load_end = std::max(engine.free, time) + engine.seconds[engine.next_load];
  }
  return time;
}

double CopyEngines::loaded(std::size_t worker, std::size_t begin, std::size_t end) const {
  double time = 0;
  if (engines_.empty()) return time;
  const Engine& engine = engines_[worker];
  for (std::size_t i = begin; i < end; ++i) {
    if (engine.of_ops[i] < 0) continue;
    const OffloadCopies& copies = engine.copies[static_cast<std::size_t>(engine.of_ops[i])];
    if (copies.backward == i) time = std::max(time, copies.load_end);
  }
  return time;
}

}  // namespace chimera
