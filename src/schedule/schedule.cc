#include "schedule/schedule.h"

#include <algorithm>
#include <utility>

namespace chimera {
namespace {

template <class T>
void sort_unique(std::vector<T>& values) {
  std::sort(values.begin(), values.end());
  values.erase(std::unique(values.begin(), values.end()), values.end());
}

}  // namespace

std::vector<std::vector<WorkerId>> stage_groups(const Placement& placement) {
  if (placement.worker_of.empty()) return {};
  std::vector<std::vector<WorkerId>> groups(placement.worker_of.front().size());
  for (const auto& replica : placement.worker_of)
    for (std::size_t s = 0; s < replica.size(); ++s) groups[s].push_back(replica[s]);
  for (auto& group : groups) sort_unique(group);
  return groups;
}

std::vector<std::int64_t> stages_held(const Schedule& schedule) {
  std::vector<std::int64_t> held(schedule.workers.size());
  for (const auto& holders : stage_groups(schedule.placement))
    for (const WorkerId worker : holders) ++held[worker.index()];
  return held;
}

// If a rank fails, training can continue with a schedule in which other workers run its stages. Lost workers keep their
// numbers, but have no ops, lower() gives them no instructions, and bubble ratios leave them out.
std::vector<bool> holds_a_stage(const Placement& placement, std::size_t workers) {
  std::vector<bool> holds(workers, false);
  for (const auto& row : placement.worker_of) {
    for (const WorkerId worker : row) {
      // A placement that check() has not seen may name workers that do not exist.
      if (worker.value() >= 0 && worker.index() < workers) holds[worker.index()] = true;
    }
  }
  return holds;
}

std::vector<std::size_t> lost_workers(const Schedule& schedule) {
  std::vector<std::size_t> lost;
  const std::vector<bool> holds = holds_a_stage(schedule.placement, schedule.workers.size());
  for (std::size_t w = 0; w < holds.size(); ++w)
    if (!holds[w]) lost.push_back(w);
  return lost;
}

bool uses_tied_matrix(StageId stage, std::int64_t stages) { return stage.value() == 0 || stage.value() + 1 == stages; }

std::vector<std::vector<WorkerId>> gradient_groups(const Placement& placement, bool tied) {
  auto groups = stage_groups(placement);
  if (!tied || groups.empty()) return groups;
  auto owners = groups.front();
  owners.insert(owners.end(), groups.back().begin(), groups.back().end());
  // A worker that holds both ends of the pipeline takes part once.
  sort_unique(owners);
  groups.push_back(std::move(owners));
  return groups;
}

// A micro-batch belongs to the replica of its first forward. Ids ascend within a replica, whatever the order of its
// ops: the order of samples must not depend on the schedule.
std::vector<std::vector<MicroBatchId>> micro_batches_of_replicas(const Schedule& schedule) {
  std::vector<std::vector<MicroBatchId>> result(schedule.placement.num_replicas());
  for (const auto& ops : schedule.workers) {
    for (const Op& op : ops)
      if (op.kind == OpKind::Forward && op.stage == StageId(0)) result[op.replica.index()].push_back(op.micro_batch);
  }
  for (auto& ids : result) sort_unique(ids);
  return result;
}

std::int64_t num_ops(const Schedule& schedule) {
  std::int64_t count = 0;
  for (const auto& ops : schedule.workers) count += static_cast<std::int64_t>(ops.size());
  return count;
}

std::int64_t peak_in_flight(const std::vector<Op>& ops) {
  std::int64_t in_flight = 0;
  std::int64_t peak = 0;
  for (const Op& op : ops) {
    in_flight += op.kind == OpKind::Forward;
    peak = std::max(peak, in_flight);
    in_flight -= gives_weight_gradient(op.kind);
  }
  return peak;
}

std::int64_t peak_in_flight(const Schedule& schedule) {
  std::int64_t most = 0;
  for (const auto& ops : schedule.workers) most = std::max(most, peak_in_flight(ops));
  return most;
}

bool has_split_backwards(const Schedule& schedule) {
  return std::ranges::any_of(schedule.workers, [](const std::vector<Op>& ops) {
    return std::ranges::find(ops, OpKind::BackwardInput, &Op::kind) != ops.end();
  });
}

bool has_pairs(const Schedule& schedule) {
  return std::ranges::any_of(schedule.workers,
                             [](const std::vector<Op>& ops) { return std::ranges::any_of(ops, &Op::paired); });
}

Schedule without_pairs(Schedule schedule) {
  for (auto& ops : schedule.workers)
    for (Op& op : ops) op.paired = false;
  return schedule;
}

}  // namespace chimera
