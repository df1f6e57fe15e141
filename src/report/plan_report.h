#pragma once
// What `chimera plan` prints.

#include <optional>
#include <string>
#include <vector>

#include "plan/compare_models.h"
#include "plan/plan.h"

namespace chimera {

/// A ranked candidate with what the report says besides.
struct ReportedCandidate {
  RankedCandidate ranked;
  PossibleGains gains;
  std::optional<ModelComparison> models;   // where equation 1 has a closed form
  std::optional<double> measured_seconds;  // median step of --run
};

struct PlanReport {
  PlanProblem problem;
  Plan plan;
  PlanRule rule = PlanRule::Simulation;
  std::vector<ReportedCandidate> candidates;        // the best first: the chosen one
  std::optional<RankedCandidate> with_more_memory;  // the best with twice the memory, where that is faster
};

/// Plans, and looks at what else the ranked candidates could gain. Throws ConfigError as make_plan() does.
[[nodiscard]] PlanReport plan_report(const PlanProblem& problem, const PlanOptions& options, PlanRule rule);

[[nodiscard]] std::string plan_text(const PlanReport& report);
[[nodiscard]] std::string plan_json(const PlanReport& report);

}  // namespace chimera
