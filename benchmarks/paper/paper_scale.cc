#include "paper/paper_scale.h"

#include "core/error.h"

namespace chimera {

const std::vector<ScaleLine>& scale_lines() {
  static const std::vector<ScaleLine> all = {{"chimera, f = 1", "chimera", {2}},
                                             {"gpipe", "gpipe"},
                                             {"1f1b", "1f1b"},
                                             {"gems", "gems"},
                                             {"pipedream", "pipedream"},
                                             {"pipedream-2bw", "pipedream-2bw"},
                                             {"chimera, any f", "chimera"},
                                             {"chimera-zb", "chimera-zb"}};
  return all;
}

std::optional<std::pair<PlanProblem, RankedCandidate>> best_at_scale(const ScaleOptions& options, const ScaleLine& line,
                                                                     std::int64_t workers) {
  PlanProblem problem;
  problem.model = find_model(options.model);
  problem.machine = read_machine(options.machine);
  problem.workers = workers;
  problem.mini_batch = workers;
  problem.memory_bytes = options.memory;
  problem.workload.sequence = options.sequence;
  problem.blocking_sends = options.blocking_sends;
  problem.sync = options.blocking_sends ? AllReducePlacement::Post : AllReducePlacement::EagerOpt;
  const PlanOptions plan_options{.schedules = {line.schedule},
                                 .given = {.pipelines = line.pipelines},
                                 .partition = {PartitionRule::Even},
                                 .recompute_all = options.recompute_all,
                                 .top = 1};
  Predictor predictor(problem);
  try {
    const Plan plan = make_plan(predictor, plan_options);
    return std::pair(predictor.problem(), plan.ranked.front());
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

const std::vector<PaperRatio>& paper_ratios() {
  static const std::vector<PaperRatio> all = {{"pipedream-2bw", 1.16}, {"gems", 2.34}};
  return all;
}

}  // namespace chimera
