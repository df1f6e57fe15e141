#include "train_command_line.h"

#include <fmt/ranges.h>
#include <iostream>

#include "core/reject.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "train/setup/option_table.h"

namespace chimera::apps {

namespace {

/// Adds the flag of a declared option.
void add_declared(CLI::App& app, const Option& option) {
  begin_group(app, option.heading);
  if (option.data != nullptr) {
    add_data(app, option.flag, *option.data, option.help);
  } else if (option.type.empty()) {
    app.add_flag_callback(
        option.flag, [take = option.take] { take("true"); }, option.help);
  } else if (option.type == kWords) {
    const auto join = [take = option.take](const std::vector<std::string>& words) {
      take(fmt::format("{}", fmt::join(words, ",")));
    };
    app.add_option_function<std::vector<std::string>>(option.flag, join, option.help)->delimiter(',');
  } else {
    add_text(app, option.flag, option.take, option.type, option.help);
  }
}

void add_planning(CLI::App& app, TrainCommandLine& flags) {
  begin_group(app, heading::kPlanning);
  add_choice(app, "--plan", flags.plan,
             "auto: choose schedule, W, T, D, N, micro-batch size, partition and checkpointing with the planner, from "
             "--machine, --workers, --mini-batch and --memory (default none)");
  add_path(app, "--machine", flags.planner.machine,
           "machine profile for --plan auto, --dry-run, --partition auto and the MFU of a run on CPUs: a file of "
           "`chimera profile`, or a shipped one such as h100-80gb");
  add_text(
      app, "--network", [&flags](const std::string& rate) { flags.planner.network = rate; }, "RATE",
      "rate between nodes in place of that of --machine, as for `chimera plan`");
  add_count(app, "--workers", flags.planner.workers, "total number of workers (P = W x T x D), for --plan auto");
  add_count(app, "--mini-batch", flags.planner.mini_batch,
            "sequences per step over all workers: gives N = this / (W b), or is for --plan auto");
}

void add_running(CLI::App& command, TrainCommandLine& flags) {
  begin_group(command, heading::kRunning);
  add_path(command, "--config,--recipe", flags.config,
           "TOML file of flags such as `stages = 4`, or a shipped recipe such as gpt2 (see recipes/); the command line "
           "overrides it");
  command.add_flag("--dry-run", flags.dry_run,
                   "print stages, parameters, memory, bubbles and predicted step time of every rank; start nothing");
}

void add_shape(CLI::App& command, TrainCommandLine& flags) {
  // `none` is no schedule: one process trains without a pipeline.
  std::vector<std::string> schedules = schedule_names();
  schedules.emplace_back("none");
  complete_names(command.get_option("--schedule"), std::move(schedules));
  apps::add_flags(command, flags.shape);
  command.get_option("--stages")->description("number of workers of one pipeline (D; default 4)");
  command.get_option("--micro-batches")
      ->description("micro-batches per step and data-parallel group, over all directions (N; default D)");
}

/// Adds the flags that follow `flag` in --help and that the table of options does not have.
void add_after(std::string_view flag, CLI::App& app, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  FlagDoor door(app);
  if (flag == "--model") complete_names(app.get_option("--model"), preset_names());
  if (flag == "--from") visit_overrides(door, o.model.overrides);
  if (flag == "--schedule") add_shape(app, flags);
  if (flag == "--reduction-blocks") {
    begin_group(app, heading::kMemory);
    visit_stage_choices(door, o.memory.recompute, o.memory.offload, "none");
  }
  if (flag == "--shard-optimizer") {
    add_planning(app, flags);
    add_running(app, flags);
  }
  if (flag == "--rendezvous-seconds") {
    add_string(app, "--interface", flags.interface, "NAME",
               "network interface between hosts, such as eth0 (default: GLOO_SOCKET_IFNAME, else the route to rank 0)");
  }
}

}  // namespace

void TrainCommandLine::add_to(CLI::App& app) {
  command = &app;
  use_files(planner);
  app.add_flag("--list-combinations", lists_combinations)->group("");  // hidden: tools/print_combinations_page
  for (const Option& option : declare_options(options)) {
    add_declared(app, option);
    // The order of declaration is the order in --help, so flags from elsewhere are put between those of the table.
    add_after(option.flag, app, *this);
  }
  add_format(app, format, {Format::Text, Format::Json});
  set_common_flags(
      app, {"--model",      "--from",       "--data",          "--sequence",      "--micro-batch-size", "--steps",
            "--schedule",   "--stages",     "--micro-batches", "--data-parallel", "--tensor-parallel",  "--device",
            "--dtype",      "--optimizer",  "--learning-rate", "--warmup",        "--config",           "--dry-run",
            "--checkpoint", "--save-every", "--resume",        "--export"});
  for (CLI::Option* option : app.get_options())  // so that later flags override those of a script
    if (option->get_expected_max() <= 1) option->take_last();
}

void TrainCommandLine::check_flags() const {
  for (const Option& option : declared_values(options))
    if (option.purpose != nullptr) require_effect(*command, {option.flag}, option.has_effect, option.purpose);
  if (options.updates.optimizer.kind != OptimizerKind::Sgd) return;
  for (const char* flag : {"--beta1", "--beta2", "--epsilon"})
    if (has(flag)) reject("{} means nothing to --optimizer sgd; leave it out", flag);
}

TrainFlags TrainCommandLine::planned_flags(PlanOptions restrictions) const {
  ProblemRequest problem_flags = planner;
  problem_flags.model = options.model.from.empty() ? options.model.name : options.model.from;
  problem_flags.fields = options.model.overrides;
  problem_flags.memory = options.memory.gib;
  problem_flags.sequence = options.data.sequence;
  problem_flags.dtype = options.numbers.dtype;
  problem_flags.optimizer = options.updates.optimizer.kind;
  problem_flags.sync = options.schedule.sync;
  problem_flags.dropout = options.model.dropout > 0;
  problem_flags.shard_optimizer = options.memory.shard_optimizer;
  const PlanProblem problem = problem_flags.problem();
  if (restrictions.given.tensor_parallel.empty()) restrictions.given.tensor_parallel = usual_tensor_parallel(problem);
  Predictor predictor(problem);
  const RankedCandidate best = make_plan(predictor, restrictions).ranked.front();
  std::cerr << fmt::format("plan: {}, recompute {}; predicted {:.4g} s a step, {:.4g} GiB\n", describe(best.candidate),
                           to_text(recompute_choice(best.candidate)), best.prediction.step_seconds,
                           best.prediction.peak_memory_bytes / kGiB);
  return train_flags(problem, best.candidate);
}

}  // namespace chimera::apps
