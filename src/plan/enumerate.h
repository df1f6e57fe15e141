#pragma once

// Lists all configurations in which a model can train on a given number of workers P. A configuration (Candidate) has W
// data-parallel groups, each a pipeline of D workers with T-way tensor parallelism: W x D x T = P. It also has a
// micro-batch size, a schedule and the schedule's parameters. A user may restrict these values (GivenConfiguration).
// list_candidates() lists the configurations, and make_plan() (plan/plan.h) simulates and ranks them.

#include <functional>
#include <optional>

#include "plan/candidate.h"

namespace chimera {

/// Values that the user allows; an empty list allows all.
struct GivenConfiguration {
  std::vector<std::int64_t> stages = {};             // D
  std::vector<std::int64_t> data_parallel = {};      // W
  std::vector<std::int64_t> micro_batch_sizes = {};  // b
  std::vector<std::int64_t> pipelines = {};          // --pipelines; if not empty, excludes schedules without this flag
  std::vector<std::int64_t> chunks = {};             // --chunks; if not empty, excludes schedules without this flag
  std::vector<std::int64_t> tensor_parallel = {1};   // T; empty: every T that can divide the model
  // Slices of a micro-batch. Empty: 1, and for causal models and D > 1 also 2, 4, 8 and 16 with at least 128 tokens a
  // slice
  std::vector<std::int64_t> slices = {1};
  std::optional<ReplicaLayout> replica_layout = {};  // nothing: both layouts
  friend bool operator==(const GivenConfiguration&, const GivenConfiguration&) = default;
  /// Returns whether nothing is restricted, apart from T = 1 and one slice.
  [[nodiscard]] bool empty() const {
    const std::vector<std::int64_t> one = {1};
    const bool usual = (tensor_parallel.empty() || tensor_parallel == one) && (slices.empty() || slices == one);
    return usual && *this == GivenConfiguration{.tensor_parallel = tensor_parallel, .slices = slices};
  }
};

/// What the planner considers, and how many results it returns.
struct PlanOptions {
  std::vector<std::string> schedules;  // names; empty: all synchronous schedules
  GivenConfiguration given = {};
  /// Even: every candidate has an even partition. Balanced: all candidates are ranked with even partitions first, and
  /// then the best ones also with balanced partitions. Listed: this partition, and only candidates with its number of
  /// stages.
  PartitionChoice partition = {PartitionRule::Balanced};
  /// Stages to recompute. Auto: as few as memory requires. Listed: these stages, and only candidates that have all of
  /// them.
  StageChoice recompute = {StageRule::Auto};
  /// Stages to offload, by the same rules. If both fields are Auto, a candidate offloads or recomputes, whichever is
  /// faster.
  StageChoice offload = {};
  bool may_shard = false;      // whether to try a sharded optimizer if memory is short
  bool recompute_all = false;  // whether to recompute all stages if memory requires any recomputation
  std::int64_t top = 10;       // number of best candidates to return; 0: all, without pruning
  std::function<void(std::int64_t tried)> progress = {};  // called before each candidate; `tried` counts it
};

/// Returns the names of all schedules that update once per step, 1f1b first.
[[nodiscard]] std::vector<std::string> synchronous_schedules();

/// Returns all candidates that `options` allow. The workers of a pipeline (D) divide P/T and are at most as many as
/// layers. The data-parallel groups (W) divide the mini-batch, and micro-batches divide the samples of a group. A
/// schedule is listed with every value of its parameters that its generator proposes (SupportedAxis::planned in
/// generate/generator.h) and accepts (Generator::find_shape_error). Both replica layouts are listed if D and W exceed 1
/// and a node holds several but not all workers. D = 1 (data parallelism) is listed once, because all schedules are
/// then equal. Candidates have at most 2^21 ops. The planner chooses their recomputation later.
///
/// Throws ConfigError, with a proposal, if there is no candidate. Also throws it if the model or the sequence cannot be
/// cut into the given slices.
[[nodiscard]] std::vector<Candidate> list_candidates(const PlanProblem& problem, const PlanOptions& options);

}  // namespace chimera
