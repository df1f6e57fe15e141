#include "schedule/place_all_reduces.h"

#include <algorithm>
#include <utility>

#include "core/mapped.h"

namespace chimera {
namespace {

/// Calls `visit` for the stage's group and, if the stage uses it, the tied matrix's.
template <class Visit>
void visit_groups(StageId stage, std::int64_t stages, bool tied, Visit&& visit) {
  visit(parameters_of(stage).index());
  if (tied && uses_tied_matrix(stage, stages)) visit(tied_matrix(stages).index());
}

/// Returns the groups to sum, by start of their last backward on any worker; empty without backward.
std::vector<ParameterGroupId> order_of_groups(const OpTable& table, const std::vector<std::int64_t>& start, bool tied) {
  const std::int64_t stages = table.schedule().stages;
  std::vector<std::pair<std::int64_t, ParameterGroupId>> last;
  for (std::int64_t g = 0; g < stages + (tied ? 1 : 0); ++g) last.emplace_back(-1, g);
  bool trains = false;
  for (OpIndex op = 0; op < table.size(); ++op) {
    if (!gives_weight_gradient(table.op(op).kind)) continue;
    trains = true;
    visit_groups(table.op(op).stage, stages, tied,
                 [&](std::size_t group) { last[group].first = std::max(last[group].first, start[op]); });
  }
  if (!trains) return {};
  // At equal times the smaller group comes first, so that all workers have the same order.
  std::sort(last.begin(), last.end());
  return mapped(last, [](const auto& start_and_group) { return start_and_group.second; });
}

// The paper's eager-opt: an all-reduce beside a worker's last ops slows them, because both use the same cores or links.
// It pays only if the worker waits afterwards, since the wait absorbs the delay.
/// Returns the last op before which the worker waits between its ops; -1 if none.
std::int64_t last_wait(const OpTable& table, const std::vector<std::int64_t>& start, std::size_t worker) {
  const OpIndex first = table.first(worker);
  for (OpIndex op = table.first(worker + 1); op-- > first + 1;)
    if (start[op] > start[op - 1] + unit_duration(table.op(op - 1).kind)) return static_cast<std::int64_t>(op - first);
  return -1;
}

/// Returns the position before which all-reduces start early; the others start after the last op.
std::int64_t eager_until(const OpTable& table, const std::vector<std::int64_t>& start, std::size_t worker,
                         AllReducePlacement placement) {
  if (placement == AllReducePlacement::Eager) return std::ssize(table.schedule().workers[worker]);
  // No op is at a position below -1, so every all-reduce comes after the worker's last op.
  return placement == AllReducePlacement::EagerOpt ? last_wait(table, start, worker) : -1;
}

}  // namespace

std::vector<std::vector<AllReduceStart>> place_all_reduces(const OpTable& table, const std::vector<std::int64_t>& start,
                                                           const AllReduceOptions& options) {
  const auto& workers = table.schedule().workers;
  const std::int64_t stages = table.schedule().stages;
  const auto groups = gradient_groups(table.schedule().placement, options.tied);
  std::vector<std::vector<AllReduceStart>> result(workers.size());
  for (const ParameterGroupId group : order_of_groups(table, start, options.tied)) {
    const auto& members = groups[group.index()];
    if (members.size() == 1 && !options.every_stage && group != tied_matrix(stages)) continue;
    for (const WorkerId member : members) result[member.index()].push_back({group});
  }
  std::vector<std::int64_t> last_backward(groups.size(), -1);  // Position on worker w
  for (std::size_t w = 0; w < workers.size(); ++w) {
    const auto& ops = workers[w];
    for (std::size_t i = 0; i < ops.size(); ++i) {
      if (!gives_weight_gradient(ops[i].kind)) continue;
      visit_groups(ops[i].stage, stages, options.tied,
                   [&](std::size_t group) { last_backward[group] = static_cast<std::int64_t>(i); });
    }
    const std::int64_t until = eager_until(table, start, w, options.placement);
    // `after` never decreases: a later group of the common order starts no earlier than the groups before it.
    std::int64_t after = -1;
    for (AllReduceStart& sum : result[w]) {
      after = std::max(after, last_backward[sum.group.index()]);
      sum.after = after < until ? after : static_cast<std::int64_t>(ops.size()) - 1;
    }
    // Only the entries that this worker has set are reset: a loop over all groups would make the function quadratic.
    for (const Op& op : ops)
      visit_groups(op.stage, stages, options.tied, [&](std::size_t group) { last_backward[group] = -1; });
  }
  return result;
}

}  // namespace chimera
