#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model_config/config.h"
#include "model_config/footprint.h"
#include "model_config/partition.h"
#include "plan/predict.h"
#include "schedule/schedule.h"

// --partition: how a model is to be cut into the stages of a schedule.

// The planner: which W, D, micro-batch size, schedule and recomputation trains a model fastest on P workers.

namespace chimera {

/// What a partition depends on beyond the choice.
struct PartitionProblem {
  const Schedule& schedule;
  const ModelConfig& model;
  Workload workload;       // of full micro-batches
  bool recompute = false;  // all stages run forward again
};

/// Even: even_partition(). Balanced: by FLOPs, see balance() (the cut of the shortest simulated step without messages
/// found by ranking some 4 million ops, or a few cuts of a long schedule). Listed: explicit_partition(). Depends on
/// nothing but its arguments, so that all ranks find the same. Throws ConfigError for more stages than layers.
[[nodiscard]] std::vector<StageLayers> named_partition(const PartitionChoice& choice, const PartitionProblem& problem);

/// What chooses among candidates: make_plan(), or plan_by_paper_rule().
enum class PlanRule : std::uint8_t { Simulation, Paper };
template <>
inline constexpr auto kNames<PlanRule> = std::to_array<Named<PlanRule>>({{PlanRule::Simulation, "simulation"},
                                                                         {PlanRule::Paper, "paper"}});

/// What is given of a configuration, as lists of values that it may have; an empty one leaves the planner free.
struct GivenConfiguration {
  std::vector<std::int64_t> stages = {};         // D
  std::vector<std::int64_t> data_parallel = {};  // W
  std::vector<std::int64_t> micro_batch_sizes = {};
  std::vector<std::int64_t> pipelines = {};         // 2f; schedules without that parameter are then left out
  std::vector<std::int64_t> tensor_parallel = {1};  // T; empty: all that can_split()
  std::optional<ReplicaLayout> replica_layout = {};
  /// Whether nothing is given but, perhaps, a free or no tensor parallelism.
  [[nodiscard]] bool empty() const {
    const bool usual = tensor_parallel.empty() || tensor_parallel == std::vector<std::int64_t>{1};
    return usual && stages.empty() && data_parallel.empty() && micro_batch_sizes.empty() && pipelines.empty() &&
           !replica_layout;
  }
};

struct PlanOptions {
  std::vector<std::string> schedules;  // empty: all synchronous ones
  GivenConfiguration given = {};
  /// Balanced: even, and the best candidates also with stages cut to balance. Listed: candidates of so many stages
  /// alone.
  PartitionChoice partition = {PartitionRule::Balanced};
  /// Auto: what memory asks for, and no more. Listed: candidates that have these stages.
  RecomputeChoice recompute = {RecomputeRule::Auto};
  bool recompute_all = false;  // where memory asks for any recomputation, all stages recompute
  std::int64_t top = 10;       // candidates to rank; 0: all, without pruning
};

struct RankedCandidate {
  Candidate candidate;
  Prediction prediction;
};

struct Plan {
  std::vector<RankedCandidate> ranked;  // those that fit, fastest first
  std::int64_t considered = 0;          // candidates in all
  std::int64_t too_large = 0;           // whose memory does not suffice, whatever they recompute
  std::int64_t pruned = 0;  // that cannot be faster than all ranked ones, by their lower bound or by their time
};

/// Names of the schedules that update once a step, kPlainSchedule first.
[[nodiscard]] std::vector<std::string> synchronous_schedules();

/// All candidates: every D that divides P (P/T, with tensor parallelism) and is at most the number of layers, W = P/D
/// where it divides the mini-batch, every b that divides what a group gets, copies near and far where nodes hold
/// several of the run's workers but not all, and every schedule with each of its shapes (TakenAxis::planned) that takes
/// D and N; of these, what `given` allows. D = 1 is data parallelism, listed once. None of more than 2^21 ops.
/// Recomputation is not chosen yet. Throws ConfigError, with what would do, where there is none.
[[nodiscard]] std::vector<Candidate> candidates_of(const PlanProblem& problem, const PlanOptions& options);

/// Ranks the candidates by simulated step time. Each recomputes what its memory asks for (stages_to_recompute), and no
/// more. In the order of their lower bounds, they are predicted with even stages until no other can be among the `top`
/// best. Where stages are to be balanced (balance(), with the machine's times), the best 40 are, whatever `top`, or the
/// best `top` of more, and ranked where that is faster; what is slower than those with even stages is not tried.
/// Throws ConfigError where nothing fits, with the least memory that would do and for which candidate.
[[nodiscard]] Plan make_plan(Predictor& predictor, const PlanOptions& options);

/// What less memory costs: the fastest candidate in the problem's memory, then the fastest that needs at least 5 %
/// less than that one, and so on until nothing fits. Each is the best of a make_plan() of its own. Throws ConfigError
/// where nothing fits in the problem's memory.
[[nodiscard]] std::vector<RankedCandidate> time_against_memory(const Predictor& predictor, PlanOptions options);

/// The paper's choice (Li and Hoefler, SC'21, section 3.4): Chimera with f = 1, even D, direct concatenation and whole
/// backwards; for each D the largest micro-batch, a power of two, that fits with D of them in flight without
/// recomputation, and with it only where not even one sequence does; then the least time by equation 1.
/// `ranked` has the `top` best (0: all) in the order of equation 1; `too_large` counts depths for which nothing fits.
[[nodiscard]] Plan plan_by_paper_rule(Predictor& predictor, std::int64_t top = 0);

}  // namespace chimera
