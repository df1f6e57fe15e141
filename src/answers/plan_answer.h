#pragma once

#include <optional>
#include <string>
#include <vector>

#include "plan/compare_models.h"
#include "plan/plan.h"
#include "plan/predict.h"

// What `chimera plan` prints.

namespace chimera {

/// A ranked candidate with what the report says besides.
struct ReportedCandidate {
  RankedCandidate ranked;
  PossibleGains gains;
  std::optional<ModelComparison> models;   // where equation 1 has a closed form
  std::optional<double> measured_seconds;  // median step of --run
  std::optional<StepParts> parts;          // where it was asked for
};

/// What a report is to say besides.
struct PlanQuestions {
  std::int64_t explain = 0;  // row, from 1, whose step is taken apart beside that of the next; 0: none
  bool pareto = false;       // time against memory
};

struct PlanReport {
  PlanProblem problem;
  Plan plan;
  PlanRule rule = PlanRule::Simulation;
  std::vector<ReportedCandidate> candidates;        // the best first: the chosen one
  std::optional<RankedCandidate> with_more_memory;  // the best with twice the memory, where that is faster
  std::vector<ReportedCandidate> frontier;          // time against memory, where it was asked for
};

/// Plans, and looks at what else the ranked candidates could gain. Throws ConfigError as make_plan() does, and where
/// there is no row to explain.
[[nodiscard]] PlanReport plan_report(const PlanProblem& problem, const PlanOptions& options, PlanRule rule,
                                     const PlanQuestions& questions = {});

[[nodiscard]] std::string plan_text(const PlanReport& report);
[[nodiscard]] std::string plan_json(const PlanReport& report);
/// A line for each ranked candidate.
[[nodiscard]] std::string plan_csv(const PlanReport& report);

}  // namespace chimera
