#include "train/run.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <memory>
#include <optional>

#include "commands.h"
#include "config_words.h"
#include "core/console.h"
#include "core/error.h"
#include "core/freed_memory.h"
#include "dry_run_report.h"
#include "launch/launcher.h"
#include "model_flags.h"
#include "options.h"
#include "partition_flag.h"
#include "schedule/schedule_json.h"
#include "schedule_file.h"
#include "train/device.h"
#include "train/report.h"
#include "train_options.h"
#include "train_plan.h"

namespace chimera::apps {
namespace {

using Words = std::vector<std::string>;

struct Flags {
  TrainOptions options;
  CLI::Option* schedule = nullptr;
  ShapeFlags shape;
  ModelFlags model;
  TrainPlanFlags plan;
  std::string config;  // a TOML file of flags
  bool dry_run = false;
  Format format = Format::Text;  // of a dry run
};

void add_flags(CLI::App& command, Flags& flags) {
  TrainOptions& o = flags.options;
  command.add_option("--model", o.model, "a preset, or a TOML file (default gpt2-mini): " + listed_models())
      ->type_name("NAME");
  flags.model.add_to(command);
  add_path(command, "--data", o.data, "UTF-8 text; its bytes are the tokens, its last 5 % validate");
  flags.schedule =
      command
          .add_option("--schedule", o.schedule, "`chimera schedules` lists them; none: unpipelined (default chimera)")
          ->type_name("NAME");
  add_path(command, "--schedule-file", o.schedule_file,
           "a schedule in JSON or CSV in place of a name and a shape; - reads standard input");
  flags.shape.add_to(command);
  add_partition(command, o.partition);
  add_count(command, "--data-parallel", o.data_parallel,
            "W, groups that run the schedule side by side, each on its share of the samples (default 1)");
  add_choice(command, "--replica-layout", o.replica_layout,
             "whether the copies of a worker are neighbouring ranks, or those of a pipeline are (default near)");
  add_count(command, "--micro-batch-size", o.micro_batch_size, "sequences of a micro-batch (default 4)");
  add_count(command, "--sequence", o.sequence, "tokens of a sequence (default 128)");
  add_count(command, "--steps", o.steps, "steps to train (default 100)");
  add_count(command, "--seed", o.seed, "chooses initial weights and the order of the data (default 1)");
  add_choice(command, "--dtype", o.dtype,
             "numbers that layers compute with; bfloat16 keeps weights, gradients and sums in "
             "float32 (default float32)");
  command.add_flag("--force-bfloat16", o.force_bfloat16,
                   "compute with bfloat16 even where the CPU has neither AVX512-BF16 nor AMX, very slowly");
  add_choice(command, "--optimizer", o.optimizer.kind, "(default adamw)");
  command
      .add_flag("--shard-optimizer", o.shard_optimizer,
                "keep its state once over the workers that hold a stage: each updates a part of the parameters and "
                "hands it to the others")
      ->type_name("");
  add_number(command, "--learning-rate", o.learning_rate.peak, "peak; falls along a cosine to a tenth (default 0.001)");
  add_count(command, "--warmup", o.learning_rate.warmup, "steps of linear warm-up (default 0)");
  add_number(command, "--weight-decay", o.optimizer.weight_decay, "on matrices (default 0.01)");
  add_number(command, "--dropout", o.dropout, "probability of an element to be dropped (default 0)");
  command
      .add_option_function<std::string>(
          "--recompute", [&o](const std::string& text) { o.recompute = parse_recompute(text); },
          "stages that run forward again before backward: none, full, a list such as 0,1, or auto: those that "
          "--memory asks for (default none)")
      ->type_name("none|full|auto|N,N");
  add_number(command, "--memory", o.memory, "GiB that a worker has, for --recompute auto and --plan auto");
  flags.plan.add_to(command);
  add_number(command, "--clip", o.clip,
             "largest global gradient norm, of asynchronous schedules each stage's own; 0: none (default 1)");
  add_choice(command, "--reduction", o.reduction,
             "order in which gradients are added: as the schedule has it, or one for all schedules, D, 2f and W, which "
             "then agree in every bit (default natural)");
  add_count(command, "--reduction-blocks", o.reduction_blocks,
            "Q, blocks of the step's micro-batches that a binary tree adds (canonical; default the largest power of "
            "two that divides N W, at most 64)");
  add_choice(command, "--sync", o.sync,
             "when gradients are summed over copies: after a worker's last op, after the stage's last backward, or so "
             "only where the worker then still waits (default eager-opt)");
  add_choice(command, "--transport", o.transport, "what ranks are (default processes)");
  add_choice(
      command, "--device", o.device,
      "where tensors live; cuda: one GPU for each process, over NCCL, or the first for all threads (default cpu)");
  add_count(command, "--threads", o.threads,
            "intra-op threads of a rank (default: cores / ranks, at least 1; with --reduction canonical 1)");
  add_number(command, "--hang-seconds", o.hang_seconds,
             "time in which no rank begins an op, beyond the longest so far, after which the job is ended and the rank "
             "that holds it up named; time in which a rank computes counts a twentieth; 0: never (default 30)");
  add_count(command, "--validate-every", o.validate_every, "steps between validations; 0: none (default 0)");
  add_path(command, "--metrics", o.metrics, "file for one JSON object a step");
  add_path(command, "--trace", o.trace,
           "file for what ran on every rank in the last steps (at most 8), as a trace for ui.perfetto.dev");
  add_path(command, "--op-times", o.op_times,
           "file for the mean time of every stage's ops, in seconds, as `chimera simulate --costs` reads it");
  add_path(command, "--tensor-memory", o.tensor_memory,
           "file for the most bytes of tensors alive at once on each rank, counted at every allocation, as JSON");
  add_path(command, "--timeline", o.timeline,
           "HTML page for a step as it ran (the median of the last ones) above its simulation with those times");
  command.add_flag("--dry-run", flags.dry_run,
                   "start nothing: print the stages, parameters, bytes, bubble and predicted step of every rank");
  add_format(command, flags.format, {Format::Text, Format::Json});
  add_path(command, "--config", flags.config, "TOML file of flags, such as `stages = 4`; those given here count more");
  for (CLI::Option* option : command.get_options()) option->take_last();  // so that flags override those of a script
}

void require_positive_shape(const Flags& flags) {
  const auto& shape = flags.shape;
  const auto require = [](const char* flag, std::int64_t value) {
    if (value < 1) throw ConfigError(fmt::format("{} must be at least 1, not {}", flag, value));
  };
  if (shape.stages->count() > 0) require("--stages", shape.shape.stages);
  if (shape.micro_batches->count() > 0) require("--micro-batches", shape.shape.micro_batches);
}

/// The schedule of --schedule-file. A rank gets it from its launcher, as standard input can be read but once.
std::shared_ptr<const Schedule> given_schedule(const Flags& flags, const Invocation& invocation) {
  if (flags.schedule->count() > 0) throw ConfigError("--schedule-file is a schedule already; leave out --schedule");
  if (flags.shape.given()) {
    throw ConfigError(
        "--schedule-file has a shape already; leave out --stages, --micro-batches and the other shape flags");
  }
  const bool launched = invocation.rank && !invocation.rank->input_path.empty();
  const std::string& path = launched ? invocation.rank->input_path : flags.options.schedule_file;
  return std::make_shared<const Schedule>(load_schedule(path));
}

TrainOptions resolve(const Flags& flags, const Invocation& invocation) {
  TrainOptions options = flags.options;
  options.overrides = flags.model.overrides();
  if (!options.schedule_file.empty()) {
    options.given = given_schedule(flags, invocation);
    return options;
  }
  require_positive_shape(flags);
  const PipelineShape defaults = options.shape;
  if (options.schedule != "none") options.shape = flags.shape.shape_for(find_generator(options.schedule));
  options.shape.stages = flags.shape.stages->count() > 0 ? flags.shape.shape.stages : defaults.stages;
  options.shape.micro_batches =
      flags.shape.micro_batches->count() > 0 ? flags.shape.shape.micro_batches : defaults.micro_batches;
  return options;
}

/// Flags read from words.
struct Parsed {
  CLI::App command;
  Flags flags;

  explicit Parsed(const Words& words) {
    add_flags(command, flags);
    try {
      command.parse(Words(words.rbegin(), words.rend()));  // CLI11 takes the last word first
    } catch (const CLI::ParseError& error) {
      throw ConfigError(fmt::format("{}; see `chimera train --help`", error.what()));
    }
  }
};

/// What the words ask for, and with which words they ask for it once --config and --plan have added theirs.
struct Asked {
  TrainOptions options;
  Words words;
  std::optional<Format> dry_run;  // what it is printed as
  std::string machine;            // whose profile predicts it; empty: this one's, assumed
};

Words planned_words(const Parsed& parsed) {
  std::vector<std::string> chosen = {"--stages",    "--micro-batches", "--data-parallel", "--micro-batch-size",
                                     "--partition", "--recompute",     "--schedule-file"};
  for (const ShapeAxis& axis : shape_axes()) chosen.push_back(axis.flag());
  for (const std::string& flag : chosen) {
    if (parsed.command.get_option(flag)->count() > 0) throw ConfigError(fmt::format("--plan auto chooses {}", flag));
  }
  TrainOptions options = parsed.flags.options;
  options.overrides = parsed.flags.model.overrides();
  return parsed.flags.plan.planned_words(options, parsed.flags.schedule->count() > 0);
}

Asked asked(Words words, const Invocation& invocation) {
  auto parsed = std::make_unique<Parsed>(words);
  if (!parsed->flags.config.empty()) {
    const Words first = config_words(parsed->flags.config, parsed->command);
    words.insert(words.begin(), first.begin(), first.end());
    parsed = std::make_unique<Parsed>(words);
  }
  parsed->flags.plan.require_sense(parsed->flags.dry_run);
  if (!parsed->flags.dry_run && parsed->command.get_option("--format")->count() > 0) {
    throw ConfigError("--format is for --dry-run; --metrics writes JSON as training goes on");
  }
  if (parsed->flags.plan.is_auto()) {
    const Words last = planned_words(*parsed);
    words.insert(words.end(), last.begin(), last.end());
    parsed = std::make_unique<Parsed>(words);
  }
  const Flags& flags = parsed->flags;
  return {resolve(flags, invocation), words, flags.dry_run ? std::optional(flags.format) : std::nullopt,
          flags.plan.machine};
}

void print_dry_run(const Asked& all) {
  const Job job = cut_job(job_shape(all.options));
  const Forecast expected = forecast(job, all.machine.empty() ? assumed_machine(job) : read_machine(all.machine));
  write_output("", *all.dry_run == Format::Json ? dry_run_json(job, expected) : dry_run_text(job, expected));
}

/// Metrics are whole lines already, so a run in one process may end at once.
void end_on_signal(int signal) { ::_exit(128 + signal); }

void end_cleanly_on_signals() {
  ::signal(SIGINT, end_on_signal);
  ::signal(SIGTERM, end_on_signal);
}

int run(const Job& job, const std::vector<std::string>& arguments) {
  ::signal(SIGPIPE, SIG_IGN);  // whoever reads, the run goes on to its end
  output().write(describe(job));
  output().drain(kPromptEnd);
  if (output().error() != 0) finish_output(kPromptEnd);
  if (job.num_ranks() == 1 || job.options.transport == TransportKind::Threads) {
    end_cleanly_on_signals();
    return run_threads(job);
  }
  return launch(
      {.ranks = static_cast<int>(job.num_ranks()),
       .arguments = arguments,
       .input = job.options.given == nullptr ? "" : to_json(*job.options.given),
       .hang = std::chrono::ceil<std::chrono::milliseconds>(std::chrono::duration<double>(job.options.hang_seconds)),
       .waits_idle = waits_idle(job.options)});
}

}  // namespace

TrainOptions train_options(const std::vector<std::string>& words) { return asked(words, Invocation{}).options; }

void add_train(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kTrain.name, kTrain.description);
  command->footer(
      "Examples:\n"
      "  chimera train --data book.txt\n"
      "  chimera train --data book.txt --schedule 1f1b --stages 2 --micro-batches 8 --validate-every 25\n"
      "  chimera train --model bert-tiny --data book.txt --stages 4 --metrics metrics.jsonl\n"
      "  chimera train --data book.txt --schedule none --micro-batches 4   (the unpipelined reference)\n"
      "  chimera train --data book.txt --schedule 1f1b --stages 2 --micro-batches 4 --data-parallel 2\n"
      "  chimera train --data book.txt --schedule-file mine.json   (or CSV, as `chimera schedule` writes them)\n"
      "  chimera train --data book.txt --steps 10 --trace trace.json --timeline page.html\n"
      "  chimera train --data book.txt --vocabulary 16384 --stages 4 --partition balanced   (or 3,2,2,1)\n"
      "  chimera train --data book.txt --stages 4 --shard-optimizer   (the copies of a stage share AdamW's state)\n"
      "  chimera train --config plan.toml --data book.txt   (as `chimera plan --output` writes it)\n"
      "  chimera train --stages 8 --data-parallel 4 --dry-run   (what every rank would hold and do)\n"
      "  chimera train --plan auto --machine here.json --workers 4 --memory 2 --mini-batch 32 --data book.txt\n"
      "\nStarts one process for each worker on this machine, connected over loopback, or threads. Every schedule\n"
      "trains on the same samples from the same weights, and its gradients are those of the unpipelined model.\n"
      "Dropout masks depend on seed, step, sample and layer only; validation drops nothing. --recompute full keeps\n"
      "the input of every stage alone and runs forwards again: less memory, more time, the same numbers.\n"
      "Asynchronous schedules (`chimera schedules`: no flush) train by other updates than these: each stage updates\n"
      "by itself, after every micro-batch or every N, with the mean loss of the update's samples, and backward uses\n"
      "the weights of its forward. Steps follow each other without a flush but for validation and the end. --clip "
      "then\n"
      "bounds the norm of each stage's own gradients; grad_norm is the root mean square, over the step's updates, of\n"
      "the norm over all stages. The learning rate changes from step to step.\n"
      "The loss is the mean over the step's target tokens, in nats. --micro-batches defaults to --stages, and\n"
      "--stages to 4; with --data-parallel W a step has W times as many. With --schedule none the flags that place "
      "stages mean nothing. With --tied true the head is the token embedding: one matrix on every worker that holds\n"
      "the first or the last stage; gpt2 is so by default.\n"
      "--config reads flags from a TOML file, named without their dashes; those of the command line count more, and\n"
      "unknown ones are errors. --plan auto chooses what `chimera plan` would, and trains with it (docs/planner.md).\n"
      "--trace, --op-times and --timeline are written at the end, whole or not at all. Of a repeated flag the last "
      "counts.\n"
      "\nWhen a rank dies, throws, gets a loss or gradient that is not finite, or was started differently from the\n"
      "others, all end within two seconds and one line names it, what it did and why. A process stopped for long\n"
      "(SIGSTOP) or waiting for ever is found by --hang-seconds; Ctrl-Z and fg of the whole job is no hang.\n"
      "Output that nobody reads (Ctrl-S, a closed pipe) stops nothing. Copies of a stage that differ end the run.\n"
      "Exit codes: 1 failed or hung; 2 wrong usage, or ranks that differ; 130 Ctrl-C; 143 SIGTERM (docs/faults.md).");
  auto flags = std::make_shared<Flags>();
  add_flags(*command, *flags);
  command->callback([flags, &invocation, &exit_code] {
    keep_freed_memory();
    Asked all = asked({invocation.arguments.begin() + 1, invocation.arguments.end()}, invocation);
    if (all.dry_run) return print_dry_run(all);
    const Job job = prepare_job(all.options);
    all.words.insert(all.words.begin(), "train");
    exit_code = invocation.rank ? run_rank(job, *invocation.rank) : run(job, all.words);
  });
}

}  // namespace chimera::apps
