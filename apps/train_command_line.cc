#include "train_command_line.h"

#include <fmt/format.h>
#include <iostream>

#include "core/error.h"
#include "help.h"
#include "options.h"
#include "plan_flags.h"
#include "train/setup/job_checkpoints.h"

namespace chimera::apps {

void CheckpointFlags::add_to(CLI::App& app, TrainOptions& options) {
  CheckpointOptions& checkpoint = options.checkpoint;
  begin_group(app, heading::kCheckpoints);
  add_path(app, "--checkpoint", checkpoint.folder,
           "save weights, optimizer state and place in the data to this folder now and then, and after the last step",
           PathKind::Folder);
  details = {
      app.add_option_function<std::string>(
             "--save-every",
             [&checkpoint](const std::string& text) { checkpoint.every = parse_save_interval("--save-every", text); },
             "steps between checkpoints, or a time such as 30s, 10min, 2h (default 10min)")
          ->type_name("N|TIME"),
      add_count(app, "--keep", checkpoint.keep.last, "newest checkpoints that stay (default 3)"),
      add_count(app, "--keep-every", checkpoint.keep.every,
                "checkpoints of steps that are multiples of this stay too; 0: none (default 0)"),
      add_count(app, "--max-restarts", options.max_restarts,
                "how often a job whose ranks die, fail or hang is started again from its newest good checkpoint "
                "(default 0)")};
  add_choice(
      app, "--recover", options.recover,
      "what becomes of a run that loses a rank: it starts again as --max-restarts says (restart); a new rank takes "
      "over "
      "weights and optimizer state from the ranks that hold the same stages, and no step is lost (twin); or it ends "
      "(none) (default restart)");
  recoveries = add_count(app, "--max-recoveries", options.max_recoveries,
                         "how often --recover twin replaces ranks in one start of the run (default 100)");
  add_choice(
      app, "--non-finite", options.non_finite,
      "what becomes of a step whose loss or gradient is not finite: it ends the run (abort); its update is not made "
      "(skip); or --max-restarts starts the run again from its newest checkpoint, and skips the step if it is not "
      "finite again (rollback) (default abort)");
  app.add_option_function<std::string>(
         "--spike", [&options](const std::string& text) { options.spike = parse_deviations("--spike", text); },
         "start the run again from its newest checkpoint, as --max-restarts allows, when a loss lies so many "
         "deviations "
         "above what those before let expect, and leave out the updates that led there (default: none does)")
      ->type_name("N[sigma]");
  spike_skip = add_count(app, "--spike-skip", options.spike_skip,
                         "mini-batches up to a spike whose updates are left out then (default 10)");
  add_choice(
      app, "--on-different-copies", options.different_copies,
      "what becomes of copies of a stage that are not equal, as a bit flipped: they end the run (abort); or they "
      "are compared after every step, and those that are unlike most take over weights and optimizer state from "
      "the others (repair) (default abort)");
  app.add_option(kFailedStepFlag, options.failed_step)->group("");  // for restarts only
  add_path(
      app, "--resume", options.resume.from,
      "go on from a checkpoint, as if the run had never stopped: a folder of them, whose newest good one is taken; "
      "one of them; auto: that of --checkpoint, if it has any; or none",
      PathKind::Folder);
  other_data = app.add_flag("--resume-other-data", options.resume.other_data,
                            "go on even if the data, the mini-batch, the sequence or the seed is not that of the "
                            "checkpoint's run");
}

void CheckpointFlags::check_flags(const TrainOptions& options) const {
  for (const CLI::Option* option : details) {
    if (option->count() > 0 && options.checkpoint.folder.empty()) {
      throw ConfigError(fmt::format("{} is for --checkpoint", option->get_name()));
    }
  }
  if (options.non_finite == NonFinite::Rollback && options.max_restarts == 0) {
    throw ConfigError("--non-finite rollback starts the run again, as --max-restarts allows; give that too");
  }
  if (options.spike > 0 && options.max_restarts == 0) {
    throw ConfigError(
        "--spike starts the run again from its newest checkpoint, as --max-restarts allows; give --checkpoint and that "
        "too");
  }
  if (spike_skip->count() > 0 && options.spike == 0) throw ConfigError("--spike-skip is for --spike");
  if (other_data->count() > 0 && options.resume.from.empty()) {
    throw ConfigError("--resume-other-data is for --resume");
  }
  if (options.max_restarts > 0 && options.transport == TransportKind::Threads) {
    throw ConfigError("--max-restarts starts processes again; leave out --transport threads");
  }
  if (options.recover == Recover::None && options.max_restarts > 0) {
    throw ConfigError("--recover none leaves nothing to --max-restarts; leave out one of them");
  }
  if (recoveries->count() > 0 && options.recover != Recover::Twin) {
    throw ConfigError("--max-recoveries is for --recover twin");
  }
  constexpr std::int64_t kMany = 1'000'000'000;
  require_between("--max-recoveries", options.max_recoveries, 1, kMany);
  require_between("--spike-skip", options.spike_skip, 1, kMany);
  require_between("--keep", options.checkpoint.keep.last, 1, kMany);
  require_between("--max-restarts", options.max_restarts, 0, kMany);
  require_between("--keep-every", options.checkpoint.keep.every, 0, kMany);
}

void OptimizerFlags::add_to(CLI::App& app, OptimizerOptions& optimizer, LearningRate& rate) {
  add_choice(app, "--optimizer", optimizer.kind, "optimizer of the master weights (default adamw)");
  of_adam = {
      add_number(app, "--beta1", optimizer.beta1,
                 "share of the running mean of gradients that a step keeps, of adamw and lamb (default 0.9)"),
      add_number(app, "--beta2", optimizer.beta2, "the same of the squares of gradients (default 0.999)"),
      add_number(app, "--epsilon", optimizer.epsilon, "what is added to the root of the latter (default 1e-8)"),
  };
  add_number(app, "--weight-decay", optimizer.weight_decay, "decoupled weight decay (default 0.01)");
  add_choice(app, "--decay", optimizer.decayed,
             "which weights decay: matrices, which biases and norms are not; matrices without embeddings; or all "
             "(default matrices)");
  add_number(app, "--learning-rate", rate.peak, "largest learning rate, after the warm-up (default 0.001)");
  add_count(app, "--warmup", rate.warmup, "steps in which the learning rate rises linearly (default 0)");
  add_choice(app, "--learning-rate-shape", rate.shape,
             "how the learning rate then falls: along a cosine or a line; in the last steps alone (wsd: warm-up, "
             "stable, decay); or not at all (default cosine)");
  minimum_option =
      add_number(app, "--min-learning-rate", minimum, "where it falls to (default a tenth of the largest)");
  cooldown_option = add_count(app, "--cooldown", cooldown, "last steps in which wsd falls (default a tenth of all)");
  cooldown_shape_option =
      add_choice(app, "--cooldown-shape", rate.cooldown_shape, "how wsd falls in them (default linear)");
}

void OptimizerFlags::complete(const OptimizerOptions& optimizer, LearningRate& rate) const {
  if (minimum_option->count() > 0) rate.minimum = minimum;
  if (cooldown_option->count() > 0) rate.cooldown = cooldown;
  if (cooldown_shape_option->count() > 0 && rate.shape != LearningRateShape::Wsd) {
    throw ConfigError("--cooldown-shape is for --learning-rate-shape wsd");
  }
  if (optimizer.kind != OptimizerKind::Sgd) return;
  for (const CLI::Option* option : of_adam) {
    if (option->count() == 0) continue;
    throw ConfigError(fmt::format("{} means nothing to --optimizer sgd; leave it out", option->get_name()));
  }
}

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

void TrainPlanFlags::check_flags() const {
  if (plan_option->count() > 0) return;
  for (const CLI::Option* option : others) {
    const bool used = option->get_name() == "--machine";
    if (option->count() > 0 && !used) throw ConfigError(fmt::format("{} is for --plan auto", option->get_name()));
  }
}

std::vector<TrainFlag> TrainPlanFlags::planned_flags(const TrainOptions& options,
                                                     const PlanOptions& restrictions) const {
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
  const RankedCandidate best = make_plan(predictor, restrictions).ranked.front();
  std::cerr << fmt::format("plan: {}, recompute {}; predicted {:.4g} s a step, {:.4g} GiB\n", in_words(best.candidate),
                           to_text(recompute_choice(best.candidate.recompute, num_stages(best.candidate))),
                           best.prediction.step_seconds, best.prediction.peak_memory_bytes / (1 << 30));
  return train_flags(problem, best.candidate);
}

namespace {

void add_model_and_data(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kModel);
  flags.model_name =
      command.add_option("--model", o.model, "a preset, or a TOML file (default gpt2-mini): " + listed_models())
          ->type_name("NAME");
  add_path(command, "--from", o.from, "Hugging Face folder whose model is trained on: config.json and safetensors",
           PathKind::Folder);
  flags.model.add_to(command);
  add_number(command, "--dropout", o.dropout, "probability with which dropout zeroes an element (default 0)");
  begin_group(command, heading::kData);
  add_data(
      command, "--data", o.data,
      "text, whose bytes are the tokens; files of tokens (Megatron's, llm.c's or raw); a folder of such files; or a "
      "mixture, as in 0.7:a 0.3:b");
  add_data(command, "--validation", o.validation,
           "data to validate on, or the share at the end of --data that is kept for validation (default 0.05, or the "
           "shards that a folder has for it)");
  add_path(command, "--tokenizer", o.tokenizer,
           "tokenizer.json, vocab.json, vocab.txt or the folder of one, which makes tokens of text (default: that of "
           "--from, else `bytes`: each byte is one)");
  add_choice(command, "--documents", o.documents,
             "whether the tokens of a sample see across the end of a document (pack), or not (default pack)");
  add_count(command, "--end-of-document", o.end_of_document,
            "token that separates documents: it ends them in raw files and begins them in llm.c's (default there: its "
            "own)");
  add_count(command, "--sequence", o.sequence, "tokens of a sequence (default 128)");
  add_count(command, "--micro-batch-size", o.micro_batch_size, "b, the sequences of a micro-batch (default 4)");
  add_count(command, "--steps", o.steps, "optimizer steps to train (default 100)");
  add_count(command, "--validate-every", o.validate_every, "steps between validations; 0: none (default 0)");
  add_count(command, "--validate-batches", o.validate_batches,
            "mini-batches that one validation looks at, at most (default 4)");
  add_count(command, "--sample-every", o.sample_every,
            "steps between samples: what a GPT-2 or Llama model says after --prompt, its 64 likeliest next tokens one "
            "by one; 0: none (default 0)");
  command.add_option("--prompt", o.prompt, "text that it goes on with")->type_name("TEXT");
}

void add_schedule_and_shape(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kSchedule);
  flags.schedule = command
                       .add_option("--schedule", o.schedule,
                                   "a schedule that `chimera schedules` lists, or none for unpipelined training "
                                   "(default chimera)")
                       ->type_name("NAME");
  add_path(command, "--schedule-file", o.schedule_file,
           "a schedule in JSON or CSV, in place of a name and a shape; - reads standard input");
  flags.shape.add_to(command);
  add_partition(command, o.partition);
}

void add_parallelism(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kParallelism);
  add_count(command, "--data-parallel", o.data_parallel,
            "W, the data-parallel groups, which run the schedule side by side on different samples (default 1)");
  add_choice(command, "--replica-layout", o.replica_layout,
             "whether neighbouring ranks are the copies of one worker (near), or the workers of one pipeline (far) "
             "(default near)");
  add_choice(command, "--sync", o.sync,
             "when a worker launches the gradient all-reduce of a stage: after its last op (post), after the stage's "
             "last backward (eager), or early only where the worker waits anyway (eager-opt) (default eager-opt)");
  command.add_flag_function(
      "--overlap-pairs", [&o](std::int64_t) { o.pairs = Pairs::Together; },
      "run the two ops of a pair side by side, the forward on a second thread of the rank: for schedules with pairs, "
      "where ranks have idle cores");
  add_choice(command, "--transport", o.transport,
             "whether ranks are processes that are connected over loopback, or threads (default processes)");
  add_choice(command, "--device", o.device,
             "where tensors live; cuda: each process has the GPU of its number on the host and NCCL connects them, or "
             "all threads share the first GPU (default cpu)");
  add_count(
      command, "--threads", o.threads,
      "intra-op threads of a rank (default: cores / ranks of this host, at least 1; 1 with --reduction canonical)");
}

void add_optimization(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kOptimization);
  flags.optimizer.add_to(command, o.optimizer, o.learning_rate);
  add_number(command, "--clip", o.clip,
             "largest global gradient norm; in asynchronous schedules each stage has its own; 0: none (default 1)");
}

void add_numbers(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kNumbers);
  add_choice(
      command, "--dtype", o.dtype,
      "type that layers compute with; bfloat16 is mixed precision: master weights, gradients and their sums stay "
      "float32 (default float32)");
  command.add_flag("--force-bfloat16", o.force_bfloat16,
                   "compute with bfloat16 even where the CPU has neither AVX512-BF16 nor AMX, or the GPU none, which "
                   "is very slow");
  command.add_flag("--tf32", o.tf32,
                   "on a GPU, multiply float32 as TensorFloat32, whose factors have 10 bits behind the point: faster, "
                   "and not the CPU's numbers");
  command.add_flag(
      "--cuda-graphs", o.cuda_graphs,
      "on a GPU, record the third step's work up to its sums as a CUDA graph and repeat that from then on, "
      "which is faster where layers are small and launching takes longer than they do; needs more memory");
  add_count(command, "--seed", o.seed, "seed of initial weights, order of the data and dropout masks (default 1)");
  add_choice(command, "--reduction", o.reduction,
             "order in which gradients are added: that of the schedule (natural), or one that makes training "
             "deterministic across schedules, D, 2f and W, in every bit (canonical) (default natural)");
  add_count(command, "--reduction-blocks", o.reduction_blocks,
            "Q, the blocks of micro-batches whose sums a binary tree adds, with --reduction canonical (default: the "
            "largest power of two that divides N W, at most 64)");
}

void add_memory(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kMemory);
  command
      .add_option_function<std::string>(
          "--recompute", [&o](const std::string& text) { o.recompute = parse_recompute(text); },
          "activation checkpointing: stages that keep their input alone and run the forward again before the backward: "
          "none; full, all stages; auto, those that have to, to fit in --memory; or a list such as 0,1 (default none)")
      ->type_name("none|full|auto|N,N");
  add_number(command, "--memory", o.memory, "GiB that a worker has, for --recompute auto and --plan auto");
  command
      .add_flag("--shard-optimizer", o.shard_optimizer,
                "keep optimizer state once over the workers that hold a stage, as ZeRO's first level does: each worker "
                "updates a part of the parameters and hands it to the others")
      ->type_name("");
}

void add_running(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kRunning);
  add_path(command, "--config,--recipe", flags.config,
           "TOML file of flags, such as `stages = 4` (recipes/ has some); flags of the command line override it");
  command.add_flag("--dry-run", flags.dry_run,
                   "start nothing, but print stages, parameters, bytes, bubble and predicted step time of every rank");
  add_number(
      command, "--hang-seconds", o.hang_seconds,
      "seconds without progress, beyond the longest pause so far, after which the job is ended and the rank that holds "
      "it up is named; while a rank computes or waits for a disk, time counts a twentieth; 0: never (default 2.5; "
      "until "
      "the first step is done 120, unless a rank was stopped by a signal)");
  command.add_flag("--verify-messages", o.verify_messages,
                   "send an XXH3 checksum with every tensor that travels between ranks, and compare it on arrival");
  add_number(command, "--meeting-seconds", o.rendezvous_seconds,
             "seconds that ranks have to find each other where torchrun, srun or mpirun starts them (default 120)");
  command
      .add_option("--interface", flags.interface,
                  "network interface through which ranks on several hosts talk, such as eth0 (default: "
                  "GLOO_SOCKET_IFNAME, else the one that leads to rank 0's host)")
      ->type_name("NAME");
}

void add_output(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kOutput);
  add_path(command, "--metrics", o.metrics, "write one JSON object a step to this file");
  add_path(command, "--tensorboard", o.tensorboard,
           "write the same numbers to an event file in this folder, for TensorBoard", PathKind::Folder);
  add_path(command, "--trace", o.trace,
           "write what every rank ran in the last steps (at most 8), as a trace for ui.perfetto.dev");
  add_path(command, "--timeline", o.timeline,
           "write an HTML page with the step of median length as it ran, above its simulation with the same op times");
  add_path(command, "--report", o.report,
           "write an HTML page about the run when it ends: loss, speed, memory, a step, predicted beside measured, "
           "configuration");
  add_path(command, "--op-times", o.op_times,
           "write the mean time of every stage's ops, in seconds, for `chimera simulate --costs`");
  command.add_flag("--report-stragglers", o.report_stragglers,
                   "close with what each rank computed a step beside what its ops take on other ranks, and name those "
                   "that are slow");
  add_path(command, "--tensor-memory", o.tensor_memory,
           "write as JSON the most bytes of tensors that were alive at once on each rank, counted at every allocation");
  add_path(command, "--flight-record", o.flight_record,
           "folder where each rank keeps its last 20,000 instructions, for `chimera diagnose` should the run fail; or "
           "none (default: flight in the folder of --checkpoint)",
           PathKind::Folder);
  flags.exports.add_to(command, o);
  add_format(command, flags.format, {Format::Text, Format::Json});
}

}  // namespace

void TrainCommandLine::add_to(CLI::App& command) {
  add_model_and_data(command, *this);
  add_schedule_and_shape(command, *this);
  add_parallelism(command, *this);
  add_optimization(command, *this);
  add_numbers(command, *this);
  add_memory(command, *this);
  begin_group(command, heading::kPlanning);
  plan.add_to(command);
  add_running(command, *this);
  checkpoints.add_to(command, options);
  add_output(command, *this);
  for (CLI::Option* option : command.get_options()) {  // so that later flags override those of a script
    if (option->get_expected_max() <= 1) option->take_last();
  }
}

}  // namespace chimera::apps
