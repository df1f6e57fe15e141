#pragma once

// Which rank runs which op on which samples. The schedule gives the ops of each worker of one pipeline. One or more
// data-parallel groups of workers run the same schedule, and RankLayout maps each pair (group, worker) to a rank. The
// samples of a step are divided in *data order*: by group, then by the replica of the model (a bidirectional schedule
// has several), then by micro-batch. All this depends only on the schedule and the number of groups, so both trainers
// share it: `chimera train` (train/setup/job.h) and RankFit for models of users (fit.h).

#include <map>
#include <memory>

#include "generate/registry.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

namespace chimera {

/// The schedule that a user chose.
struct ScheduleChoice {
  std::string name = kDefaultSchedule;  // name in the registry, or "none": unpipelined, on a single rank
  PipelineShape shape{.stages = 4, .micro_batches = 0};  // micro_batches 0: number of stages
  std::shared_ptr<const Schedule> given = nullptr;       // replaces `name` and `shape`

  [[nodiscard]] bool is_unpipelined() const { return given == nullptr && name == "none"; }
};

/// Input of run_shape(). If the schedule is "none" (unpipelined), a single rank runs the micro-batches of all
/// `data_parallel` groups, in data order.
struct RunRequest {
  ScheduleChoice schedule;
  std::int64_t data_parallel = 1;                      // data-parallel groups, which run the schedule concurrently
  ReplicaLayout replica_layout = ReplicaLayout::Near;  // Near: copies of a worker have consecutive ranks
  std::int64_t micro_batch_size = 1;  // samples; some schedules split it in halves (Schedule::micro_batch_scale)
};

/// Result of run_shape().
struct RunShape {
  Schedule schedule;  // schedule of each data-parallel group
  RankLayout ranks;
  bool tied = false;                        // first and last stage share the embedding matrix; the caller sets it
  std::int64_t micro_batch_size = 1;        // samples (RunRequest)
  std::vector<std::int64_t> data_position;  // [micro-batch]: its number in data order, within the group

  [[nodiscard]] std::int64_t num_ranks() const { return ranks.num_ranks(); }
  /// Returns, for each parameter group (stage, then the tied matrix if there is one), the workers of one data-parallel
  /// group that hold its parameters.
  [[nodiscard]] WorkerGroups worker_groups() const { return gradient_groups(schedule.placement, tied); }
  /// Returns, for each parameter group, the ranks of all data-parallel groups that hold its parameters.
  [[nodiscard]] RankGroups rank_groups() const { return ranks.ranks_of(worker_groups()); }
  /// Returns the worker's stages in all replicas, ascending.
  [[nodiscard]] std::vector<StageId> stages_of(WorkerId worker) const;
  /// Returns the number of samples that an op processes: micro_batch_size * Schedule::micro_batch_scale.
  [[nodiscard]] std::int64_t samples_per_op() const;
  /// Returns the number of micro-batches of a step in all groups together.
  [[nodiscard]] std::int64_t micro_batches() const { return schedule.micro_batches * ranks.data_parallel; }
  /// Returns the number of samples of a step.
  [[nodiscard]] std::int64_t mini_batch() const { return samples_per_op() * micro_batches(); }
  /// Returns the number of weight updates of a stage in a step; more than 1 only for asynchronous schedules.
  [[nodiscard]] std::int64_t updates() const {
    return schedule.updates ? schedule.micro_batches / schedule.updates->micro_batches : 1;
  }
  /// Returns the micro-batch's number in the data order of the step, from 0.
  [[nodiscard]] std::int64_t position(GroupId group, MicroBatchId micro_batch) const {
    return group.value() * schedule.micro_batches + data_position[micro_batch.index()];
  }
  /// Returns the index of the micro-batch's first sample in the mini-batch.
  [[nodiscard]] std::int64_t first_sample(GroupId group, MicroBatchId micro_batch) const {
    return position(group, micro_batch) * samples_per_op();
  }
};

/// Generates or copies the schedule, checks it and assigns ranks and samples. Throws ConfigError for an unknown
/// schedule or an invalid shape, ScheduleError if check() finds a violation.
[[nodiscard]] RunShape run_shape(const RunRequest& request);

/// Throws ConfigError if micro_batch_size * Schedule::micro_batch_scale is not a whole number of samples. `what` is the
/// flag or field of the micro-batch size.
void require_whole_micro_batches(const RunShape& shape, const std::string& what);

/// Returns RunShape::data_position: [micro-batch], its number if they are ordered by replica, then by id.
[[nodiscard]] std::vector<std::int64_t> data_positions(const Schedule& schedule);

/// Returns the sum of `losses`, one per micro-batch of a step; the loss of micro-batch m of group g has index g *
/// micro-batches per group + m. Adds them in data order, so the sum has the same bits for all schedules.
/// `micro_batch_at` [place in data order] is the micro-batch that runs there (dealing.h); empty: in order.
[[nodiscard]] double sum_in_data_order(const RunShape& shape, std::span<const double> losses,
                                       std::span<const std::int64_t> micro_batch_at = {});

/// Calls `make(StageId)`, which returns a std::unique_ptr, for each stage that the worker holds.
template <class Make>
[[nodiscard]] auto make_stages_of_worker(const RunShape& shape, WorkerId worker, const Make& make) {
  std::map<StageId, decltype(make(StageId()))> stages;
  for (const StageId id : shape.stages_of(worker)) stages.emplace(id, make(id));
  return stages;
}

/// Returns pointers to the stages, which `stages` keeps.
template <class Base, class Made>
[[nodiscard]] std::map<StageId, Base*> borrow(const std::map<StageId, std::unique_ptr<Made>>& stages) {
  std::map<StageId, Base*> borrowed;
  for (const auto& [id, stage] : stages) borrowed.emplace(id, stage.get());
  return borrowed;
}

}  // namespace chimera
