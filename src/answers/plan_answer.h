#pragma once

// Output of `chimera plan`, which looks for the fastest way to train a model on a machine. A candidate is a choice of
// schedule, number of stages, number of data-parallel groups, micro-batch size and so on. The planner predicts the step
// time of each with two models: the simulator (simulate/), and equation 1 of the Chimera paper, a formula that exists
// only for some schedules (plan/equation_one.h). analyze_plan() ranks the candidates. For the best, it also computes
// how much faster they would be with a free network or more memory, and why the two models differ. plan_text(),
// plan_json() and plan_csv() print the result; the playground, a web page, shows the JSON.

#include <cstdint>
#include <nlohmann/json.hpp>

#include "generate/registry.h"
#include "plan/compare_models.h"
#include "plan/plan.h"
#include "plan/predict.h"

namespace chimera {

/// A row of the table of candidates.
struct AnalyzedCandidate {
  RankedCandidate ranked;                      // the candidate and its predicted step time and memory
  std::optional<PossibleGains> gains = {};     // step times if the network were free, or without recomputation
  std::optional<ModelComparison> models = {};  // simulator against equation 1; empty if the paper has no formula for it
  std::optional<double> measured_seconds = {};  // median step time of a real run; set by `plan --run`
  std::optional<StepParts> parts = {};          // step time by cause; set for the two rows of PlanQuestions::explain
};

/// Further results for analyze_plan() to compute.
struct PlanQuestions {
  std::int64_t explain = 0;  // row (from 1) to explain together with the next row; 0: none
  bool pareto = false;       // whether to compute PlanAnalysis::frontier
};

/// Everything that plan_text(), plan_json() and plan_csv() show. `slowdowns` is empty if the schedule is asynchronous,
/// if several ranks share each layer (T above 1), or if there are too many ops to try.
struct PlanAnalysis {
  PlanProblem problem;                                   // input of the planner: model, machine, workers, mini-batch
  Plan plan;                                             // result of make_plan() or plan_by_paper_rule()
  PlanRule rule = PlanRule::Simulation;                  // how candidates were ranked
  std::vector<AnalyzedCandidate> candidates = {};        // best first
  std::optional<RankedCandidate> with_more_memory = {};  // fastest with twice the memory, if at least 0.1 % faster
  std::vector<double> slowdowns = {};  // [worker]: how many times as long a step of the best candidate takes if this
                                       // worker is lost; 0: no other worker has its stages
  std::vector<AnalyzedCandidate> frontier = {};  // Pareto front of time and memory, if requested
  std::vector<std::string> notes = {};           // lines below the title of plan_text(): options
  std::vector<std::string> assumptions = {};     // lines below its table: assumed numbers of the machine profile
};

/// Ranks the candidates with make_plan(), or plan_by_paper_rule() for PlanRule::Paper, and analyzes the best of them.
/// Throws ConfigError if no candidate fits in memory, if an option is invalid, or if the row to explain does not exist.
[[nodiscard]] PlanAnalysis analyze_plan(const PlanProblem& problem, const PlanOptions& options, PlanRule rule,
                                        const PlanQuestions& questions = {});

/// Returns `value`, a value of the schedule parameter `axis`, as JSON: its name if the values have names, else a
/// number.
[[nodiscard]] nlohmann::ordered_json axis_json(const ShapeAxis& axis, std::int64_t value);

/// Returns the machine's name and, if workers are on several nodes, the rate between these that the plan assumes.
[[nodiscard]] std::string machine_text(const PlanProblem& problem);

/// Return the table of candidates with all explanations, the same as JSON, and the table alone as CSV.
[[nodiscard]] std::string plan_text(const PlanAnalysis& report);
[[nodiscard]] std::string plan_json(const PlanAnalysis& report);
[[nodiscard]] std::string plan_csv(const PlanAnalysis& report);

}  // namespace chimera
