// `chimera plan`: the answer comes from answers/plan_answer.h, like that of the playground. Here are its outputs: the
// table, a file of flags for `train --config`, costs for `simulate`, a job script for SLURM, and measured runs of the
// best candidates.

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>

#include "answers/plan_answer.h"
#include "bench/contest.h"
#include "bench/random_letters.h"
#include "commands.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/files.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "flags/files.h"
#include "flags/flag_door.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "launch/local/gpu_cores.h"
#include "model_config/parameters.h"
#include "plan/train_flags.h"
#include "program.h"
#include "progress_line.h"
#include "simulate/costs_json.h"

namespace chimera::apps {
namespace {

struct PlanArguments : RequestArguments<PlanRequest> {
  std::int64_t run = 0;
  std::string data;  // text for measured runs; empty: random letters
  std::string costs;
  std::string sbatch;
  std::optional<std::int64_t> ranks_of_node;  // default: GPUs of a node, else ranks that share layers
};

/// Returns the learning rate of GPT-3 models of this size (Brown et al., 2020, table 2.1); 0 for smaller ones, which
/// take the default of `chimera train`.
double usual_learning_rate(double parameters) {
  struct Row {
    double parameters;
    double rate;
  };
  constexpr std::array kRows = {Row{1e11, 0.6e-4}, Row{1e10, 1e-4},  Row{5e9, 1.2e-4}, Row{2e9, 1.6e-4},
                                Row{1e9, 2e-4},    Row{6e8, 2.5e-4}, Row{2.5e8, 3e-4}, Row{1e8, 6e-4}};
  const auto* const row = std::ranges::find_if(kRows, [&](const Row& each) { return parameters >= each.parameters; });
  // The rows descend, so the first that fits is the largest.
  return row == kRows.end() ? 0 : row->rate;
}

/// Returns what only the user can decide, and what the plan sets for a model of this size.
std::string to_set(const PlanProblem& problem) {
  constexpr double kTokensOfParameter = 20;  // Hoffmann et al., 2022
  const auto parameters = static_cast<double>(parameter_count(problem.model));
  const auto tokens = static_cast<double>(problem.mini_batch * problem.workload.sequence);
  return fmt::format(
      "Set --steps: 20 tokens a parameter are {:.0f} steps of {:.3g} tokens. --learning-rate is {}; it warms up and\n"
      "decays as --warmup and --learning-rate-shape of `chimera train` say.\n",
      std::ceil(kTokensOfParameter * parameters / tokens), tokens,
      usual_learning_rate(parameters) > 0 ? "GPT-3's for this size" : "the default");
}

/// Makes paths absolute, so that a file of flags can be used in another folder.
std::string absolute_if_path(const std::string& name) {
  return path_exists(name) ? std::filesystem::absolute(name).string() : name;
}

/// Returns flags of `chimera train` for the model, sequence, number type, optimizer, dropout and device of `problem`.
TrainFlags workload_flags(const ProblemRequest& request, const PlanProblem& problem) {
  TrainFlags flags;
  flags[is_folder(request.model) ? "from" : "model"] = absolute_if_path(request.model);
  const ModelOverrides& fields = request.fields;
  for (const auto& [name, size] :
       {std::pair("layers", fields.layers), std::pair("hidden", fields.hidden), std::pair("heads", fields.heads),
        std::pair("key-value-heads", fields.key_value_heads), std::pair("vocabulary", fields.vocabulary)})
    if (size) flags[name] = *size;
  if (fields.tied) flags["tied"] = *fields.tied ? "true" : "false";
  flags["sequence"] = problem.workload.sequence;
  flags["dtype"] = to_text(request.dtype_for(problem.model));
  flags["optimizer"] = to_text(request.optimizer);
  if (request.dropout) flags["dropout"] = "0.1";  // Memory and time are those of any probability
  // Profiles of GPUs have no cores.
  if (problem.machine.cores == 0) flags["device"] = to_text(DeviceKind::Cuda);
  return flags;
}

TrainFlags all_flags(const PlanArguments& options, const PlanProblem& problem, const Candidate& candidate) {
  // Model and workload first, then what the planner chose for them.
  auto flags = workload_flags(options.request, problem);
  flags.update(train_flags(problem, candidate));
  const double rate = usual_learning_rate(static_cast<double>(parameter_count(problem.model)));
  if (rate > 0 && options.request.optimizer == OptimizerKind::AdamW) flags["learning-rate"] = fmt::format("{:g}", rate);
  return flags;
}

/// Trains with each of the best plans for a few steps, because their predicted times may differ by less than the error
/// of the prediction. The runs alternate, so that a change of the machine's speed affects all of them.
void measure(const PlanArguments& options, PlanAnalysis& report) {
  if (options.run == 0) return;
  const TemporaryFolder folder;
  // Step times do not depend on the letters, only on their number.
  std::string text = options.data;
  if (text.empty()) write_random_letters(text = folder.file("text.txt"));
  std::vector<Contender> runs;
  for (std::size_t i = 0; i < report.candidates.size() && runs.size() < static_cast<std::size_t>(options.run); ++i) {
    // The table is sorted by predicted time, so that these are the best.
    auto words = to_words(all_flags(options, report.problem, report.candidates[i].ranked.candidate));
    words.insert(words.end(), {"--data", text, "--steps", "8"});
    runs.push_back({fmt::format("run {}", i + 1), training_command(words)});
  }
  const auto scores = run_contest(runs, {.rounds = 3}, [](const auto& line) { messages().write(line); });
  for (std::size_t i = 0; i < scores.size(); ++i)
    report.candidates[i].measured_seconds = spread_of(scores[i].step_seconds).median;
}

std::string print_plan(const PlanAnalysis& report, Format format) {
  if (format == Format::Json) return plan_json(report);
  return format == Format::Csv ? plan_csv(report) : plan_text(report);
}

/// `seconds` is the predicted time of a step as text, or empty if the file has it elsewhere.
std::string description(const PlanAnalysis& report, const std::string& seconds) {
  // A file should say on its own what it is for.
  const RankedCandidate& chosen = report.plan.ranked.front();
  std::string text = fmt::format(
      "Written by `chimera plan` for {} of {}, {:.4g} GiB each, mini-batch {}.\n"
      "Predicted: {}{:.4g} GiB on the fullest worker.\n",
      counted(report.problem.workers, "worker"), machine_text(report.problem), report.problem.memory_bytes / kGiB,
      report.problem.mini_batch, seconds, chosen.prediction.peak_memory_bytes / kGiB);
  for (const std::string& note : report.notes) text += note + "\n";
  for (const std::string& line : report.assumptions) text += line + "\n";
  return text + to_set(report.problem);
}

void write_plan(const PlanArguments& options, const PlanAnalysis& report) {
  if (options.output.empty()) return;
  const RankedCandidate& chosen = report.plan.ranked.front();
  TrainFlags flags = all_flags(options, report.problem, chosen.candidate);
  const ProblemRequest& request = options.request;
  const MachineProfile& machine = report.problem.machine;
  if (request.machine != "-") {
    flags["machine"] = absolute_if_path(request.machine);
    if (!request.network.empty()) flags["network"] = request.network;
  }
  // A GPU's profile that reserves nothing is compared with the memory of tensors, but a run also counts its context.
  if (request.memory > 0 && (machine.cores > 0 || machine.reserved.all() > 0))
    flags["memory"] = fmt::format("{:g}", request.memory);
  std::string text = to_toml(flags, description(report, "") + "chimera train --config THIS --data FILE");
  // A field, so that the run can compare its steps with the plan. It has eager kernels.
  if (machine.kernels == Kernels::Eager)
    text += fmt::format("predicted_step_seconds = {:.6g}\n", chosen.prediction.step_seconds);
  write_output(options.output, text);
}

void require_whole_nodes(std::int64_t ranks, std::int64_t ranks_of_node, std::int64_t tensor_parallel = 1) {
  if (ranks_of_node < 1 || ranks % ranks_of_node != 0)
    reject("--ranks-per-node {} does not divide the {} ranks; expected one that does", ranks_of_node, ranks);
  // Ranks that share layers exchange sums in each op, for which a network is too slow.
  if (ranks_of_node % tensor_parallel == 0) return;
  reject("--ranks-per-node {}: the plan has {} ranks that share layers, on one node; expected a multiple of {}",
         ranks_of_node, tensor_parallel, tensor_parallel);
}

/// The script is complete for the plan. Data, steps and checkpoints come from the command line of sbatch, since the
/// plan does not know them.
void write_job(const PlanArguments& options, const PlanAnalysis& report) {
  if (options.sbatch.empty()) return;
  const auto& [chosen, prediction] = report.plan.ranked.front();
  const std::string seconds = fmt::format("{:.4g} s a step, ", prediction.step_seconds);
  const std::int64_t ranks = chosen.data_parallel * chosen.tensor_parallel * chosen.shape.stages;
  const bool has_gpus = report.problem.machine.cores == 0;
  // A node with some idle GPUs is better than ranks of one job on nodes of unequal numbers. Example: 12 ranks on nodes
  // of 8 GPUs become 3 nodes with 4 ranks each.
  const std::int64_t ranks_of_node = options.ranks_of_node.value_or(
      has_gpus ? std::gcd(ranks, report.problem.machine.workers_per_node) : chosen.tensor_parallel);
  require_whole_nodes(ranks, ranks_of_node, chosen.tensor_parallel);
  const std::string gpus =
      has_gpus
          ? fmt::format(
                "#SBATCH --gpus-per-node={}\n"
                "#SBATCH --cpus-per-task={}\n"
                "# A rank has its own threads, c10d's and NCCL's. --device cuda needs libchimera_cuda.so beside the\n"
                "# program (tools/cuda-build). Runs on several GPUs were never tried (docs/devices.md).\n",
                ranks_of_node, kCoresOfGpuRank)
          : "";
  // SLURM signals only the batch shell (B:), 120 s before the time limit, so the shell forwards the signal to all
  // ranks.
  const std::string script = fmt::format(
      R"(#!/bin/bash
{comment}# sbatch THIS --data FILE --steps N --checkpoint FOLDER --resume auto   # further flags of `train` come last
#SBATCH --job-name={name}
#SBATCH --nodes={nodes}
#SBATCH --ntasks={ranks}
#SBATCH --ntasks-per-node={ranks_of_node}
{block}{gpus}# The run saves before its time is over, and is queued again.
#SBATCH --time=24:00:00
#SBATCH --signal=B:USR1@120
#SBATCH --requeue
#SBATCH --open-mode=append
set -u
case " $* " in
  *" --steps"[=\ ]*) ;;
  *) echo "$0: --steps is missing; the first lines say how many" >&2 && exit 2 ;;
esac
# Ranks prove to each other that they are of this job.
CHIMERA_SECRET=$(od -An -N32 -tx1 /dev/urandom | tr -d ' \n')
export CHIMERA_SECRET
# The run saves, if it has --checkpoint, and ends with 75.
trap 'scancel --signal=USR1 "$SLURM_JOB_ID"' USR1
srun --kill-on-bad-exit=1 "${{CHIMERA:-chimera}}" train {flags} \
  "$@" &
steps=$!
while kill -0 "$steps" 2>/dev/null; do
  wait "$steps" # which a signal ends too
done
wait "$steps" # its exit code is kept
code=$?
if [ "$code" -eq 75 ]; then
  scontrol requeue "$SLURM_JOB_ID"
fi
exit "$code"
)",
      // TOML and shell scripts have the same comments.
      fmt::arg("comment", to_toml(TrainFlags::object(), description(report, seconds))),
      fmt::arg("name", "chimera-" + options.request.model), fmt::arg("nodes", ranks / ranks_of_node),
      fmt::arg("ranks", ranks), fmt::arg("ranks_of_node", ranks_of_node), fmt::arg("gpus", gpus),
      // Neighboring ranks share layers. SLURM's default may deal ranks out to the nodes one by one.
      fmt::arg("block", chosen.tensor_parallel == 1 ? "" : "#SBATCH --distribution=block\n"),
      fmt::arg("flags", shell_words(to_words(all_flags(options, report.problem, chosen)))));
  write_output(options.sbatch, script);
}

void check_flags(const CLI::App& command, const PlanArguments& options) {
  if (options.run < 0) reject("--run must be 0 or more, not {}", options.run);
  require_effect(command, {"--data"}, options.run > 0, "--run");
  if (options.format == Format::Csv && options.request.questions.explain > 0)
    reject("--explain: a CSV table has no explanations; use --format text or json");
  require_effect(command, {"--ranks-per-node"}, !options.sbatch.empty(), "--sbatch");
  for (const char* flag : {"--format", "--explain", "--pareto"}) {
    if (options.sbatch != "-" || command.count(flag) == 0) continue;
    reject("{}: --sbatch - prints the job in place of the table; leave out one of them", flag);
  }
  // Before the search, which may be long.
  require_whole_nodes(options.request.workers, options.ranks_of_node.value_or(1));
}

void write_costs(const PlanArguments& options, const PlanAnalysis& report) {
  if (options.costs.empty()) return;
  // The costs of the chosen plan, as the planner simulated them: `simulate --costs` then gives the same step.
  Predictor predictor(report.problem);
  write_output(options.costs, costs_to_json(predictor.prepare(report.plan.ranked.front().candidate).model.costs));
}

}  // namespace

void add_plan(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("plan", "Choose schedule, shape and partition for a model on given workers");
  command->footer(
      "Examples:\n"
      "  chimera plan --workers 4 --mini-batch 32 --memory 2 --machine here.json\n"
      "  chimera plan --model bert-48 --workers 32 --mini-batch 512 --memory 16 --machine p100-aries\n"
      "  chimera plan --workers 4 --mini-batch 32 --machine here.json --schedules chimera --stages 2,4 --explain\n"
      "  chimera plan --workers 4 --mini-batch 32 --machine here.json --output plan.toml\n"
      "  chimera plan --model llama-3-8b --workers 64 --mini-batch 128 --machine h100-80gb --sbatch job.sh\n"
      "  chimera plan --model gpt2-mini --workers 2 --mini-batch 32 --memory 4 --machine here.json --run 3\n"
      "\nThe planner simulates all combinations of W x D, micro-batch size, schedule and partition that fit in memory, "
      "and ranks them by step time. Flags fix a part of the configuration. Asynchronous schedules are considered only "
      "if --schedules names them.\n"
      "\nExit code 2: nothing fits.\n"
      "\nMore: docs/planner.md");
  auto options = std::make_shared<PlanArguments>();
  use_files(options->request);
  add_flags(*command, options->request);
  complete_names(command->get_option("--model"), preset_names());
  command
      ->add_option_function<std::vector<std::string>>(
          "--explain",
          [&row = options->request.questions.explain](const std::vector<std::string>& words) {
            row = words.empty() || words[0].empty() ? 1 : parse_count("--explain", words[0]);
            require_between("--explain", row, 1, 1'000'000'000);
          },
          "explain the step time of this row and of the next (default row 1)")
      ->type_name("ROW")
      ->expected(0, 1);
  add_count(*command, "--run", options->run, "number of best candidates to train here for some steps (default 0)");
  add_path(*command, "--data", options->data, "UTF-8 text for --run (default: random letters)");
  add_format(*command, options->format, {Format::Text, Format::Json, Format::Csv});
  add_output_checks(
      *command,
      {add_path(*command, "--output", options->output, "write the plan to this file, for `chimera train --config`"),
       add_path(*command, "--costs", options->costs,
                "write the costs of the chosen plan to this file, for `chimera simulate --costs`"),
       add_path(*command, "--sbatch", options->sbatch,
                "write the plan to this file as a SLURM job; - prints it instead of the table")});
  add_count(*command, "--ranks-per-node", options->ranks_of_node,
            "ranks per node of the SLURM job (default: GPUs per node of a GPU profile, else 1)");
  set_common_flags(*command,
                   {"--top",        "--run",           "--model",           "--memory",          "--stages",
                    "--format",     "--output",        "--sbatch",          "--machine",         "--network",
                    "--workers",    "--explain",       "--sequence",        "--schedules",       "--recompute",
                    "--mini-batch", "--data-parallel", "--tensor-parallel", "--shard-optimizer", "--micro-batch-size"});
  command->callback([command, options] {
    check_flags(*command, *options);
    // Files are written before the table, so that a reader that closes the pipe early loses none.
    ProgressLine line;
    options->request.options.progress = [&line](std::int64_t tried) {
      line.show([&] { return fmt::format("planning: {} simulated", counted(tried, "candidate")); });
    };
    PlanAnalysis report = answer(options->request);
    line.clear();
    measure(*options, report);
    write_plan(*options, report);
    write_costs(*options, report);
    write_job(*options, report);
    if (options->sbatch != "-") write_output("", print_plan(report, options->format), options->format);
  });
}

}  // namespace chimera::apps
