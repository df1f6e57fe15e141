#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"
#include "plan/predict.h"
#include "schedule/schedule.h"

// The planner: finds the W, D, micro-batch size, schedule and recomputation that train fastest on P workers.

namespace chimera {

struct PartitionProblem {
  const Schedule& schedule;
  const ModelConfig& model;
  Workload workload;       // full micro-batches
  bool recompute = false;  // all stages recompute
};

/// Returns the stages. Even: even_partition(). Balanced: balance() by FLOPs and simulation without messages, with about
/// 4 million simulated ops. Listed: explicit_partition(). Deterministic, so that all ranks compute the same result.
/// Throws ConfigError if there are more stages than layers.
[[nodiscard]] std::vector<StageLayers> named_partition(const PartitionChoice& choice, const PartitionProblem& problem);

/// Rule that chooses among candidates: make_plan() or plan_by_paper_rule().
enum class PlanRule : std::uint8_t { Simulation, Paper };
template <>
inline constexpr auto kNames<PlanRule> = std::to_array<Named<PlanRule>>({{PlanRule::Simulation, "simulation"},
                                                                         {PlanRule::Paper, "paper"}});

/// Allowed values; an empty list allows all.
struct GivenConfiguration {
  std::vector<std::int64_t> stages = {};         // D
  std::vector<std::int64_t> data_parallel = {};  // W
  std::vector<std::int64_t> micro_batch_sizes = {};
  std::vector<std::int64_t> pipelines = {};         // 2f; excludes schedules without that parameter
  std::vector<std::int64_t> tensor_parallel = {1};  // T; empty: every T that can_split() accepts
  // k; empty: 1, and for causal models and D > 1 also 2, 4, 8 and 16 with at least 128 tokens a slice
  std::vector<std::int64_t> slices = {1};
  std::optional<ReplicaLayout> replica_layout = {};
  /// Returns whether nothing is restricted, apart from T = 1 and k = 1.
  [[nodiscard]] bool empty() const {
    const std::vector<std::int64_t> one = {1};
    const bool usual = (tensor_parallel.empty() || tensor_parallel == one) && (slices.empty() || slices == one);
    return usual && stages.empty() && data_parallel.empty() && micro_batch_sizes.empty() && pipelines.empty() &&
           !replica_layout;
  }
};

struct PlanOptions {
  std::vector<std::string> schedules;  // empty: all synchronous
  GivenConfiguration given = {};
  /// Balanced: even, and also balanced for the best candidates. Listed: only candidates with this many stages.
  PartitionChoice partition = {PartitionRule::Balanced};
  /// Auto: as few stages as memory requires. Listed: only candidates that have these stages.
  StageChoice recompute = {StageRule::Auto};
  /// Auto, as above. If both are Auto, a candidate offloads or recomputes, whichever is faster.
  StageChoice offload = {};
  bool recompute_all = false;  // whether to recompute all stages if memory requires any recomputation
  std::int64_t top = 10;       // candidates to rank; 0: all, without pruning
};

struct RankedCandidate {
  Candidate candidate;
  Prediction prediction;
};

struct Plan {
  std::vector<RankedCandidate> ranked;  // candidates that fit, fastest first
  std::int64_t considered = 0;
  std::int64_t too_large = 0;  // candidates that exceed memory with any recomputation
  std::int64_t pruned = 0;     // candidates slower than all ranked ones, by lower bound or prediction
};

/// Returns all schedules that update once per step, kPlainSchedule first.
[[nodiscard]] std::vector<std::string> synchronous_schedules();

/// Returns all candidates that `given` allows. D divides P/T and is at most the number of layers; W divides the
/// mini-batch; b divides a group's share. Schedules have every planned shape (TakenAxis::planned) that accepts D and N.
/// Both replica layouts are tried if nodes hold several but not all workers. D = 1 (data parallelism) is listed once.
/// Candidates have at most 2^21 ops and no recomputation yet. Throws ConfigError, with a proposal, if there is no
/// candidate, and if the model or the sequence cannot be cut into given slices.
[[nodiscard]] std::vector<Candidate> candidates_of(const PlanProblem& problem, const PlanOptions& options);

/// Ranks candidates by simulated step time, with the least recomputation (stages_to_recompute) or offloading
/// (stages_to_offload) that fits. Predicts even
/// stages in the order of lower bounds until no other candidate can be among the `top` best. If the partition is
/// Balanced, also tries balanced stages for the best max(40, `top`) and ranks each faster cut. Throws ConfigError, with
/// the least sufficient memory, if nothing fits.
[[nodiscard]] Plan make_plan(Predictor& predictor, const PlanOptions& options);

/// Returns the fastest candidate in the problem's memory, then repeatedly the fastest that needs at least 5 % less,
/// until nothing fits. Each is the best of a make_plan(). Throws ConfigError if nothing fits in the problem's memory.
[[nodiscard]] std::vector<RankedCandidate> time_against_memory(const Predictor& predictor, PlanOptions options);

/// Returns the paper's choice (Li and Hoefler, SC'21, section 3.4): Chimera with f = 1, even D, direct concatenation
/// and whole backwards. The micro-batch size of each D is the largest power of two that fits with D micro-batches in
/// flight. Recomputes only if a single sequence does not fit. `ranked` has the `top` best (0: all) by equation 1;
/// `too_large` counts depths that do not fit.
[[nodiscard]] Plan plan_by_paper_rule(Predictor& predictor, std::int64_t top = 0);

}  // namespace chimera
