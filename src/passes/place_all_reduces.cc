#include "passes/place_all_reduces.h"

#include <algorithm>
#include <utility>

namespace chimera {
namespace {

constexpr double kLeastIdle = 1e-9;  // of a worker's step; less is rounding

/// The stages that are summed, in the order in which their last backwards begin on any worker; none where nothing runs
/// backward.
std::vector<StageId> order_of_stages(const OpTable& table, const std::vector<std::int64_t>& start) {
  std::vector<std::pair<std::int64_t, StageId>> last;
  for (std::int64_t s = 0; s < table.schedule().stages; ++s) last.emplace_back(-1, s);
  bool trains = false;
  for (OpIndex op = 0; op < table.size(); ++op) {
    if (!gives_weight_gradient(table.op(op).kind)) continue;
    trains = true;
    auto& latest = last[table.op(op).stage.index()].first;
    latest = std::max(latest, start[op]);
  }
  std::vector<StageId> order;
  if (!trains) return order;
  std::sort(last.begin(), last.end());
  for (const auto& [begin, stage] : last) order.push_back(stage);
  return order;
}

/// The position of the last op before which the worker waits in the midst of its ops; -1 where it never does.
std::int64_t last_wait(const WorkerTimeline& worker) {
  const auto& ops = worker.ops;
  if (ops.empty()) return -1;
  const double length = ops.back().end - ops.front().start;
  double idle = 0;
  for (std::size_t i = ops.size() - 1; i > 0; --i) {
    idle += ops[i].start - ops[i - 1].end;
    if (idle > kLeastIdle * length) return static_cast<std::int64_t>(i);
  }
  return -1;
}

}  // namespace

std::vector<std::vector<AllReduceStart>> place_all_reduces(const OpTable& table, const std::vector<std::int64_t>& start,
                                                           const AllReduceOptions& options) {
  const auto& workers = table.schedule().workers;
  const auto groups = stage_groups(table.schedule().placement);
  std::vector<std::vector<AllReduceStart>> result(workers.size());
  for (const StageId stage : order_of_stages(table, start)) {
    const auto& group = groups[stage.index()];
    if (group.size() == 1 && !options.every_stage) continue;
    for (const WorkerId member : group) result[member.index()].push_back({stage});
  }
  std::vector<std::int64_t> last_backward(groups.size(), -1);  // position on the worker at hand
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto& ops = workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (gives_weight_gradient(ops[i].kind)) last_backward[ops[i].stage.index()] = static_cast<std::int64_t>(i);
    }
    const std::int64_t end = static_cast<std::int64_t>(ops.size()) - 1;
    std::int64_t eager_until = end;  // starts at earlier positions stay there
    if (options.placement == AllReducePlacement::EagerOpt) eager_until = last_wait(options.timeline->workers[w]);
    if (options.placement == AllReducePlacement::Post) eager_until = -1;
    std::int64_t after = -1;
    for (AllReduceStart& sum : result[w]) {
      after = std::max(after, last_backward[sum.stage.index()]);
      sum.after = after < eager_until ? after : end;
    }
    for (const Op& op : ops) last_backward[op.stage.index()] = -1;
  }
  return result;
}

}  // namespace chimera
