#pragma once

// Output of `chimera plan`. plan_report() plans and then asks further questions about the result: what a faster
// network or more memory would gain, and why the two models of time differ. plan_text(), plan_json() and plan_csv()
// print the report; the playground reads the JSON.

#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "generate/registry.h"
#include "plan/compare_models.h"
#include "plan/plan.h"
#include "plan/predict.h"

namespace chimera {

struct ReportedCandidate {
  RankedCandidate ranked;
  PossibleGains gains = {};
  std::optional<ModelComparison> models = {};   // set if equation 1 has a closed form for the schedule
  std::optional<double> measured_seconds = {};  // median step time of --run
  std::optional<StepParts> parts = {};          // set for the candidates to explain
};

struct PlanQuestions {
  std::int64_t explain = 0;  // row (from 1) to explain together with the next row; 0: none
  bool pareto = false;       // whether to compute PlanReport::frontier
};

struct PlanReport {
  PlanProblem problem;
  Plan plan;
  PlanRule rule = PlanRule::Simulation;
  std::vector<ReportedCandidate> candidates = {};        // best first
  std::optional<RankedCandidate> with_more_memory = {};  // fastest with twice the memory, if at least 0.1 % faster
  std::vector<ReportedCandidate> frontier = {};          // Pareto front of time and memory, if requested
  std::vector<std::string> notes = {};                   // lines below the title of plan_text(): options, assumptions
};

/// Plans and analyzes the ranked candidates. Throws ConfigError as make_plan() does, and if the row to explain does not
/// exist.
[[nodiscard]] PlanReport plan_report(const PlanProblem& problem, const PlanOptions& options, PlanRule rule,
                                     const PlanQuestions& questions = {});

/// Returns the value of a schedule's parameter, a number or a name.
[[nodiscard]] nlohmann::ordered_json axis_json(const ShapeAxis& axis, std::int64_t value);

/// Returns how many of the first candidates have step times within the machine's `expected_error` of the best.
[[nodiscard]] std::int64_t num_tied(const PlanReport& report);

[[nodiscard]] std::string plan_text(const PlanReport& report);
[[nodiscard]] std::string plan_json(const PlanReport& report);
[[nodiscard]] std::string plan_csv(const PlanReport& report);

}  // namespace chimera
