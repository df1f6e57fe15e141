#include "train_plan.h"

#include <fmt/format.h>

#include <iostream>

#include "core/error.h"
#include "plan/plan.h"
#include "plan/train_flags.h"
#include "plan_flags.h"

namespace chimera::apps {

void TrainPlanFlags::add_to(CLI::App& app) {
  plan_option =
      add_choice(app, "--plan", plan,
                 "auto: let the planner choose schedule, W, D, N, micro-batch size, partition and recomputation, as "
                 "`chimera plan` does from the next three flags and --memory (default none)");
  others = {add_path(app, "--machine", machine,
                     "profile of the machine, in JSON, for --plan auto, --dry-run and the MFU of a run"),
            add_count(app, "--workers", workers, "P, the workers in all: W x D, for --plan auto"),
            add_count(app, "--mini-batch", mini_batch, "sequences of a step over all workers, for --plan auto")};
}

void TrainPlanFlags::require_sense() const {
  if (plan_option->count() > 0) return;
  for (const CLI::Option* option : others) {
    const bool used = option->get_name() == "--machine";
    if (option->count() > 0 && !used) throw ConfigError(fmt::format("{} is for --plan auto", option->get_name()));
  }
}

std::vector<std::string> TrainPlanFlags::planned_words(const TrainOptions& options, bool schedule_given) const {
  PlanFlags flags;
  flags.model = options.from.empty() ? options.model : options.from;
  flags.workers = workers;
  flags.mini_batch = mini_batch;
  flags.machine = machine;
  flags.sequence = options.sequence;
  flags.dtype = options.dtype;
  flags.optimizer = options.optimizer.kind;
  flags.sync = options.sync;
  flags.dropout = options.dropout > 0;
  flags.shard_optimizer = options.shard_optimizer;
  const PlanProblem problem = flags.problem(options.overrides, options.memory);
  Predictor predictor(problem);
  PlanOptions plan_options{.schedules = {}, .top = 1};
  if (schedule_given) plan_options.schedules = {options.schedule};
  const RankedCandidate best = make_plan(predictor, plan_options).ranked.front();
  std::cerr << fmt::format("plan: {}, recompute {}; predicted {:.4g} s a step, {:.4g} GiB\n", in_words(best.candidate),
                           to_text(recompute_choice(best.candidate.recompute, num_stages(best.candidate))),
                           best.prediction.step_seconds, best.prediction.peak_memory_bytes / (1 << 30));
  auto words = to_words(train_flags(problem, best.candidate));
  words.emplace_back("--plan=none");
  return words;
}

}  // namespace chimera::apps
