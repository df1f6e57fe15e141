#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "schedule/rank_layout.h"
#include "schedule/schedule.h"

// The shape of a run: which rank runs which ops on which samples. All that follows from a schedule and the number of
// data-parallel groups, found without a model's sizes, data or programs.

// The stages of one rank, owned by whoever trains them and borrowed by everything else.

namespace chimera {

/// Which schedule a run is asked to follow.
struct ScheduleChoice {
  std::string name = kDefaultSchedule;              // of the registry, or "none": unpipelined, on one rank
  PipelineShape shape{4, 0, 2};                     // micro_batches 0: as many as stages
  std::shared_ptr<const Schedule> given = nullptr;  // in place of both, as from a file

  [[nodiscard]] bool is_unpipelined() const { return given == nullptr && name == "none"; }
};

/// What a shape follows from. Unpipelined, one rank runs the micro-batches of all groups, in the order of the data.
struct RunRequest {
  ScheduleChoice schedule;
  std::int64_t data_parallel = 1;  // W: groups that run the schedule side by side
  ReplicaLayout replica_layout = ReplicaLayout::Near;
  std::int64_t micro_batch_size = 1;  // samples of a full micro-batch
};

struct RunShape {
  Schedule schedule;  // of one data-parallel group
  RankLayout ranks;
  bool tied = false;                        // stage 0 and the last share a matrix
  std::int64_t full_micro_batch = 1;        // samples
  std::vector<std::int64_t> data_position;  // [micro-batch]: which run of its group's samples it takes

  [[nodiscard]] std::int64_t num_ranks() const { return ranks.num_ranks(); }
  /// The workers of a group that hold each stage and, of a tied model, those that own its matrix.
  [[nodiscard]] WorkerGroups worker_groups() const { return gradient_groups(schedule.placement, tied); }
  /// The ranks of all groups that hold a stage, or own the matrix.
  [[nodiscard]] RankGroups rank_groups() const { return ranks.ranks_of(worker_groups()); }
  /// The stages that a worker holds in any replica, ascending.
  [[nodiscard]] std::vector<StageId> stages_of(WorkerId worker) const;
  /// Samples of one of the schedule's micro-batches: a part of a full one after backward halving.
  [[nodiscard]] std::int64_t micro_batch_size() const;
  /// Micro-batches of one step, over all groups.
  [[nodiscard]] std::int64_t micro_batches() const { return schedule.micro_batches * ranks.data_parallel; }
  /// Samples of one step, over all micro-batches.
  [[nodiscard]] std::int64_t mini_batch() const { return micro_batch_size() * micro_batches(); }
  /// Number of updates of a stage's weights in a step.
  [[nodiscard]] std::int64_t updates() const {
    return schedule.updates ? schedule.micro_batches / schedule.updates->micro_batches : 1;
  }
  /// Which run of the step's samples a micro-batch takes: groups one after the other, then as data_position says.
  [[nodiscard]] std::int64_t position(GroupId group, MicroBatchId micro_batch) const {
    return group.value() * schedule.micro_batches + data_position[micro_batch.index()];
  }
  /// The first of the micro-batch's samples, as an index into the step's.
  [[nodiscard]] std::int64_t first_sample(GroupId group, MicroBatchId micro_batch) const {
    return position(group, micro_batch) * micro_batch_size();
  }
};

/// Generates or takes the schedule, checks it and deals out ranks and samples. Throws ConfigError for an unknown
/// schedule and a shape that it does not take, ScheduleError where check() finds a violation.
[[nodiscard]] RunShape run_shape(const RunRequest& request);

/// Throws ConfigError where backward halving would cut a sample; `what` is the flag or field that says their number.
void require_whole_micro_batches(const RunShape& shape, const std::string& what);

/// Where each micro-batch's samples stand among those of its group: samples are dealt out by replica, then by ascending
/// id.
[[nodiscard]] std::vector<std::int64_t> data_positions(const Schedule& schedule);

/// The sum of a step's losses, [group][micro-batch], in the order of the data: every schedule adds the same numbers in
/// the same order.
[[nodiscard]] double sum_in_data_order(const RunShape& shape, std::span<const double> losses);

/// The stages that the worker holds in any replica, by id: each is what `make(StageId)` returns, a std::unique_ptr.
template <class Make>
[[nodiscard]] auto make_held_stages(const RunShape& shape, WorkerId worker, const Make& make) {
  std::map<StageId, decltype(make(StageId()))> stages;
  for (const StageId id : shape.stages_of(worker)) stages.emplace(id, make(id));
  return stages;
}

/// The same stages as pointers to `Base`.
template <class Base, class Made>
[[nodiscard]] std::map<StageId, Base*> borrow(const std::map<StageId, std::unique_ptr<Made>>& stages) {
  std::map<StageId, Base*> borrowed;
  for (const auto& [id, stage] : stages) borrowed.emplace(id, stage.get());
  return borrowed;
}

}  // namespace chimera
