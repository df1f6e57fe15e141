#pragma once

// Which rank runs which op on which samples. The schedule gives the ops of a pipeline; data-parallel groups repeat it,
// and RankLayout gives each (group, worker) a rank. The samples of a step are divided in data order: by group, then by
// the replica of a bidirectional schedule, then by micro-batch. This depends only on the schedule and the number of
// groups, so both trainers share it (train/setup/job.h, fit.h).

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

namespace chimera {

struct ScheduleChoice {
  std::string name = kDefaultSchedule;  // name in the registry, or "none": unpipelined, on a single rank
  PipelineShape shape{.stages = 4, .micro_batches = 0};  // micro_batches 0: number of stages
  std::shared_ptr<const Schedule> given = nullptr;       // replaces `name` and `shape`

  [[nodiscard]] bool is_unpipelined() const { return given == nullptr && name == "none"; }
};

/// Unpipelined, a single rank runs the micro-batches of all groups in data order.
struct RunRequest {
  ScheduleChoice schedule;
  std::int64_t data_parallel = 1;  // W, groups that run the schedule concurrently
  ReplicaLayout replica_layout = ReplicaLayout::Near;
  std::int64_t micro_batch_size = 1;  // samples, before backward halving
};

struct RunShape {
  Schedule schedule;  // schedule of each data-parallel group
  RankLayout ranks;
  bool tied = false;                        // stage 0 and the last share a matrix
  std::int64_t micro_batch_size = 1;        // samples, before backward halving
  std::vector<std::int64_t> data_position;  // [micro-batch]: position in the group's samples, in micro-batches

  [[nodiscard]] std::int64_t num_ranks() const { return ranks.num_ranks(); }
  /// Returns the workers of a group by stage, then the owners of a tied matrix.
  [[nodiscard]] WorkerGroups worker_groups() const { return gradient_groups(schedule.placement, tied); }
  /// Returns the same over all groups.
  [[nodiscard]] RankGroups rank_groups() const { return ranks.ranks_of(worker_groups()); }
  /// Returns the worker's stages in all replicas, ascending.
  [[nodiscard]] std::vector<StageId> stages_of(WorkerId worker) const;
  /// Returns the samples that an op processes: `micro_batch_size`, or part of them after backward halving.
  [[nodiscard]] std::int64_t samples_per_op() const;
  /// Returns the micro-batches of a step over all groups.
  [[nodiscard]] std::int64_t micro_batches() const { return schedule.micro_batches * ranks.data_parallel; }
  [[nodiscard]] std::int64_t mini_batch() const { return samples_per_op() * micro_batches(); }
  /// Returns the updates per stage and step.
  [[nodiscard]] std::int64_t updates() const {
    return schedule.updates ? schedule.micro_batches / schedule.updates->micro_batches : 1;
  }
  /// Returns the position in the step's samples: by group, then by data_position.
  [[nodiscard]] std::int64_t position(GroupId group, MicroBatchId micro_batch) const {
    return group.value() * schedule.micro_batches + data_position[micro_batch.index()];
  }
  [[nodiscard]] std::int64_t first_sample(GroupId group, MicroBatchId micro_batch) const {
    return position(group, micro_batch) * samples_per_op();
  }
};

/// Generates or copies the schedule, checks it and assigns ranks and samples. Throws ConfigError for an unknown
/// schedule or an invalid shape, ScheduleError if check() finds a violation.
[[nodiscard]] RunShape run_shape(const RunRequest& request);

/// Throws ConfigError if backward halving would split a sample; `what` names the flag or field.
void require_whole_micro_batches(const RunShape& shape, const std::string& what);

/// Returns each micro-batch's position among the samples of its group: ordered by replica, then by id.
[[nodiscard]] std::vector<std::int64_t> data_positions(const Schedule& schedule);

/// Sums losses [group][micro-batch] in data order, which is equal in all schedules.
[[nodiscard]] double sum_in_data_order(const RunShape& shape, std::span<const double> losses);

/// Makes the worker's stages with `make(StageId)`, which returns a std::unique_ptr.
template <class Make>
[[nodiscard]] auto make_held_stages(const RunShape& shape, WorkerId worker, const Make& make) {
  std::map<StageId, decltype(make(StageId()))> stages;
  for (const StageId id : shape.stages_of(worker)) stages.emplace(id, make(id));
  return stages;
}

template <class Base, class Made>
[[nodiscard]] std::map<StageId, Base*> borrow(const std::map<StageId, std::unique_ptr<Made>>& stages) {
  std::map<StageId, Base*> borrowed;
  for (const auto& [id, stage] : stages) borrowed.emplace(id, stage.get());
  return borrowed;
}

}  // namespace chimera
