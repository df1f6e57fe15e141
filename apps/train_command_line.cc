#include "train_command_line.h"

#include <fmt/format.h>
#include <cmath>
#include <iostream>

#include "answers/cost_request.h"
#include "core/error.h"
#include "core/reject.h"
#include "flags/model.h"
#include "flags/outputs.h"
#include "flags/plan.h"
#include "flags/values.h"
#include "help.h"
#include "train/setup/job_checkpoints.h"

namespace chimera::apps {

namespace {

void add_checkpoints(CLI::App& app, TrainOptions& options) {
  CheckpointOptions& checkpoint = options.checkpoint;
  begin_group(app, heading::kCheckpoints);
  add_path(app, "--checkpoint", checkpoint.folder,
           "save weights, optimizer state and data position here: after every 10 minutes of training, or as "
           "--save-every says, and at the end",
           PathKind::Folder);
  add_count(app, "--keep", checkpoint.keep.last,
            "number of newest checkpoints to keep (default 3, or as in the resumed run)");
  add_count(app, "--keep-every", checkpoint.keep.every,
            "also keep the first checkpoint at or after each multiple of this number of steps; 0: none (default 0, or "
            "as in the resumed run)");
  add_text(
      app, "--save-every",
      [&checkpoint](const std::string& text) { checkpoint.every = parse_save_interval("--save-every", text); },
      "N|TIME", "steps between checkpoints, or a time such as 30s, 10min, 2h (default 10min)");
  add_count(app, "--max-restarts", options.recovery.max_restarts,
            "how often the job is restarted from its newest valid checkpoint after a failure or hang (default 0, or 3 "
            "with --recover restart)");
  add_choice(
      app, "--recover", options.recovery.recover,
      "what to do if a rank dies: restart, as often as --max-restarts allows (3 if not given); twin, replace the rank "
      "with the state of its replicas, without losing a step; reroute, go on without it, the replicas do its work; or "
      "none, end the run (default restart)");
  add_count(app, "--max-recoveries", options.recovery.max_recoveries,
            "how often ranks are lost in one attempt of the run until --recover twin or reroute ends it (default 100)");
  add_number(app, "--spare-seconds", options.recovery.spare_seconds,
             "how long --recover twin waits for a replacement before it goes on as reroute does; a late one returns "
             "(default 10)");
  add_choice(app, "--non-finite", options.recovery.non_finite,
             "what to do if the loss or a gradient is not finite: abort the run; skip the update; or rollback to the "
             "newest checkpoint, as --max-restarts allows, and skip the step if it fails again (default abort)");
  add_text(
      app, "--spike",
      [&options](const std::string& text) { options.recovery.spike = parse_deviations("--spike", text); }, "N[sigma]",
      "roll back to the newest checkpoint, as --max-restarts allows, if a loss is this many deviations above the "
      "expected loss, and skip the updates before it (default: never)");
  add_count(app, "--spike-skip", options.recovery.spike_skip,
            "number of mini-batches up to a spike whose updates are skipped (default 10)");
  add_choice(app, "--on-different-copies", options.recovery.different_copies,
             "what to do if the replicas of a stage differ, for example after a bit flip: abort the run; or repair, "
             "compare after every step and overwrite a differing minority (default abort)");
  app.add_option(kFailedStepFlag, options.recovery.failed_step)->group("");   // hidden flag that only restarts set
  app.add_option(kPlannedStepFlag, options.planned.step_seconds)->group("");  // only in the files of `chimera plan`
  add_path(app, "--resume", options.resume.from,
           "continue a run: a checkpoint; a folder of checkpoints (the newest valid one); auto: from the folder of "
           "--checkpoint, if it has any; or none",
           PathKind::Folder);
  app.add_flag("--resume-other-data", options.resume.other_data,
               "continue even if data, mini-batch, sequence length or seed differ from the saved run");
}

void check_recovery(const TrainCommandLine& flags) {
  const TrainOptions& options = flags.options;
  const bool saves = !options.checkpoint.folder.empty();
  require_effect(*flags.command, {"--keep", "--keep-every", "--save-every", "--max-restarts"}, saves, "--checkpoint");
  require_effect(*flags.command, {"--spike-skip"}, options.recovery.spike > 0, "--spike");
  require_effect(*flags.command, {"--resume-other-data"}, !options.resume.from.empty(), "--resume");
  require_effect(*flags.command, {"--max-recoveries"}, options.recovery.outlives_ranks(), "--recover twin or reroute");
  require_effect(*flags.command, {"--spare-seconds"}, options.recovery.recover == Recover::Twin, "--recover twin");
  if (!(options.recovery.spare_seconds >= 0 && options.recovery.spare_seconds <= 1e6)) {
    throw ConfigError(fmt::format("--spare-seconds {:g}: must be 0 .. 1e6", options.recovery.spare_seconds));
  }
  constexpr std::int64_t kMany = 1'000'000'000;
  require_between("--max-recoveries", options.recovery.max_recoveries, 1, kMany);
  require_between("--spike-skip", options.recovery.spike_skip, 1, kMany);
  require_between("--keep", options.checkpoint.keep.last, 1, kMany);
  require_between("--max-restarts", options.recovery.max_restarts, 0, kMany);
  require_between("--keep-every", options.checkpoint.keep.every, 0, kMany);
}

void add_optimization(CLI::App& app, TrainOptions& options) {
  OptimizerOptions& optimizer = options.updates.optimizer;
  LearningRate& rate = options.updates.learning_rate;
  begin_group(app, heading::kOptimization);
  add_choice(app, "--optimizer", optimizer.kind, "optimizer of the master weights (default adamw)");
  add_number(app, "--beta1", optimizer.beta1, "decay rate of the mean gradient (default 0.9)");
  add_number(app, "--beta2", optimizer.beta2, "decay rate of the mean squared gradient (default 0.999)");
  add_number(app, "--epsilon", optimizer.epsilon, "term added to the root of the mean squared gradient (default 1e-8)");
  add_number(app, "--momentum", optimizer.muon.momentum, "momentum of muon (default 0.95)");
  add_choice(app, "--muon-adjust", optimizer.muon.adjust,
             "learning rate of muon's matrices: as large updates as adamw, or the original rule (default "
             "match-rms-adamw)");
  add_choice(app, "--muon-dtype", optimizer.muon.iterations,
             "type in which muon orthogonalizes matrices (default: that of the layers, --dtype)");
  app.add_option("--muon-exclude", optimizer.muon.exclude,
                 "matrices of blocks that adamw updates: parts of their names, such as mlp,v_proj")
      ->delimiter(',');
  add_number(app, "--weight-decay", optimizer.weight_decay, "decoupled weight decay (default 0.01)");
  add_choice(
      app, "--decay", optimizer.decayed,
      "weights that decay: matrices (no biases and norms), matrices without embeddings, or all (default matrices)");
  add_number(app, "--learning-rate", rate.peak,
             "peak learning rate, after the warm-up (default 0.001, or 5e-5 with --from)");
  add_count(app, "--warmup", rate.warmup,
            "steps of linear warm-up, of which the last has the peak (default 5 % of the steps, 4 to 2000)");
  add_choice(app, "--learning-rate-shape", rate.shape,
             "decay of the learning rate: cosine, linear, wsd (only in the last steps), or constant (default cosine)");
  add_number(app, "--min-learning-rate", rate.minimum, "learning rate of the last step (default a tenth of the peak)");
  add_count(app, "--cooldown", rate.cooldown,
            "number of last steps in which wsd decays (default a tenth of all steps, at least 1)");
  add_choice(app, "--cooldown-shape", rate.cooldown_shape, "shape of the wsd decay (default linear)");
  add_number(app, "--clip", options.updates.clip,
             "maximum gradient norm: global, or per stage in asynchronous schedules; 0: none (default 1)");
}

void add_planning(CLI::App& app, TrainCommandLine& flags) {
  begin_group(app, heading::kPlanning);
  add_choice(app, "--plan", flags.plan,
             "auto: choose schedule, W, D, N, micro-batch size, partition and checkpointing with the planner, from "
             "--machine, --workers, --mini-batch and --memory (default none)");
  add_path(app, "--machine", flags.planner.machine,
           "machine profile for --plan auto, --dry-run, --partition auto and the MFU of a run on CPUs: a file of "
           "`chimera profile`, or a shipped one such as h100-80gb");
  add_count(app, "--workers", flags.planner.workers, "total number of workers (P = W x D), for --plan auto");
  add_count(app, "--mini-batch", flags.planner.mini_batch,
            "sequences per step over all workers: gives N = this / (W b), or is for --plan auto");
}

void add_model_and_data(CLI::App& command, TrainOptions& o) {
  begin_group(command, heading::kModel);
  complete_names(
      command
          .add_option("--model", o.model.name, "preset (see `chimera model --help`) or TOML file (default gpt2-mini)")
          ->type_name("NAME"),
      preset_names());
  add_path(command, "--from", o.model.from, "Hugging Face folder to start from: config.json and safetensors",
           PathKind::Folder);
  add_model_fields(command, o.model.overrides);
  add_number(command, "--dropout", o.model.dropout, "dropout probability (default 0)");
  begin_group(command, heading::kData);
  add_data(command, "--data", o.data.training,
           "text; files of tokens (Megatron, llm.c or raw); a folder of such files; or a mixture such as 0.7:a 0.3:b");
  add_data(command, "--validation", o.data.validation,
           "validation data, or the fraction at the end of --data to hold out (default 0.05, or the validation shards "
           "of a folder)");
  add_path(command, "--tokenizer", o.data.tokenizer,
           "tokenizer.json, vocab.json, vocab.txt, a folder with one of them, or `bytes` (default: the tokenizer of "
           "--from; `bytes` without --from)");
  add_choice(command, "--documents", o.data.documents,
             "whether attention crosses document boundaries (pack) or not (default pack)");
  add_count(
      command, "--end-of-document", o.data.end_of_document,
      "token id between documents: the last token in raw files, the first in llm.c files (default for llm.c: its own)");
  add_count(command, "--sequence", o.data.sequence, "tokens per sequence (default 128)");
  add_count(command, "--micro-batch-size", o.data.micro_batch_size, "sequences per micro-batch (b; default 4)");
  add_count(command, "--steps", o.updates.steps, "number of optimizer steps (default 100)");
  add_count(command, "--validate-every", o.data.validate_every, "steps between validations; 0: none (default 0)");
  add_count(command, "--validate-batches", o.data.validate_batches,
            "maximum number of mini-batches per validation (default 4)");
  add_count(command, "--sample-every", o.data.sample_every,
            "steps between text samples: 64 tokens that GPT-2 or Llama generates greedily after --prompt; 0: none "
            "(default 0)");
  command.add_option("--prompt", o.data.prompt, "text that samples continue")->type_name("TEXT");
}

std::vector<std::int64_t> tokens_of_slices(const std::string& text) {
  std::vector<std::int64_t> tokens;
  for (const double length : parse_slice_lengths(text)) {
    constexpr double kMaxTokens = 1e9;
    // `simulate` takes fractions as lengths; tokens are whole.
    if (length != std::floor(length) || length > kMaxTokens) {
      reject("--slice-lengths {}: must be whole numbers of tokens up to 10^9", text);
    }
    tokens.push_back(static_cast<std::int64_t>(length));
  }
  return tokens;
}

void add_schedule_and_shape(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kSchedule);
  // `none` is no schedule: one process trains without a pipeline.
  std::vector<std::string> schedules = schedule_names();
  schedules.emplace_back("none");
  complete_names(command
                     .add_option("--schedule", o.schedule.name,
                                 "name, JSON or CSV file, - (standard input), or none (default chimera)")
                     ->type_name("NAME"),
                 std::move(schedules));
  flags.shape.add_to(command);
  flags.shape.stages->description("number of workers of one pipeline (D; default 4)");
  flags.shape.micro_batches->description(
      "micro-batches per step and data-parallel group, over all directions (N; default D)");
  add_text(
      command, "--slice-lengths", [&o](const std::string& text) { o.schedule.slice_lengths = tokens_of_slices(text); },
      "balanced|equal|N,N",
      "tokens of the slices: balanced, which take equal times by attention's share of the model's FLOPs; equal; or "
      "a list (default balanced)");
  add_partition(command, o.schedule.partition);
}

void add_parallelism(CLI::App& command, TrainOptions& o) {
  begin_group(command, heading::kParallelism);
  add_count(command, "--data-parallel", o.parallel.data_parallel, "number of data-parallel groups (W; default 1)");
  add_count(command, "--tensor-parallel", o.parallel.tensor_parallel,
            "number of neighboring ranks that share the layers of a worker (T; default 1)");
  add_choice(command, "--sequence-parallel", o.parallel.sequence_parallel,
             "divide the tokens of norms and dropout over the T ranks: auto, if T divides the sequence and its slices; "
             "or none "
             "(default auto)");
  add_choice(
      command, "--replica-layout", o.parallel.replica_layout,
      "which ranks are neighbors: the replicas of a worker (near), or the workers of a pipeline (far) (default near)");
  add_choice(command, "--sync", o.schedule.sync,
             "when a worker launches the gradient all-reduce of a stage: after its last op (post), after the last "
             "backward of the stage (eager), or eagerly only before idle time (eager-opt) (default eager-opt)");
  command.add_flag_function(
      "--overlap-pairs", [&o](std::int64_t) { o.schedule.pairs = Pairs::Together; },
      "overlap the two ops of a pair, with a second thread per rank; for schedules with pairs and idle cores");
  add_choice(command, "--transport", o.device.transport,
             "whether ranks are processes connected over loopback, or threads (default processes)");
  add_choice(
      command, "--device", o.device.kind,
      "device of the tensors; cuda: one GPU and NCCL per process, or the first GPU for all threads (default cpu)");
  add_count(
      command, "--threads", o.device.threads,
      "intra-op threads of a rank, instead of OMP_NUM_THREADS (default: cores / ranks of this host, at least 1; 1 with "
      "--reduction canonical)");
}

void add_numbers(CLI::App& command, TrainOptions& o) {
  begin_group(command, heading::kNumbers);
  add_choice(
      command, "--dtype", o.numbers.dtype,
      "type of computation; bfloat16: mixed precision with float32 master weights and gradients (default float32)");
  command.add_flag("--force-bfloat16", o.numbers.force_bfloat16,
                   "use bfloat16 on CPUs without AVX512-BF16 and AMX, or on GPUs without it, which is very slow");
  command.add_flag("--tf32", o.numbers.tf32,
                   "multiply float32 matrices as TensorFloat32 on a GPU: faster, with 10-bit mantissas");
  command.add_flag(
      "--cuda-graphs", o.numbers.cuda_graphs,
      "record the work of the third step as a CUDA graph and replay it: faster for small layers, needs more memory");
  command.add_flag(
      "--op-graphs", o.numbers.op_graphs,
      "record each op of a stage as a CUDA graph before the first step, and replay it (never run on a GPU)");
  add_count(command, "--seed", o.data.seed, "seed of initial weights, data order and dropout masks (default 1)");
  add_choice(command, "--reduction", o.numbers.reduction,
             "order of gradient sums: natural (as in the schedule), or canonical (bitwise equal for every schedule, D, "
             "2f and W) (default natural)");
  add_count(command, "--reduction-blocks", o.numbers.reduction_blocks,
            "number of micro-batch blocks that a binary tree adds (Q), for --reduction canonical (default: the largest "
            "power of two that divides N W, at most 64)");
}

void add_memory(CLI::App& command, TrainOptions& o) {
  begin_group(command, heading::kMemory);
  add_stage_choices(command, o.memory.recompute, o.memory.offload, "none");
  add_number(command, "--memory", o.memory.gib,
             "memory of a worker in GiB: a run that needs more is refused; for --recompute auto, --offload auto and "
             "--plan auto, and for copies of lost stages with --recover");
  command.add_flag("--no-memory-check", o.memory.ignores, "start a run that is predicted not to fit in memory");
  command
      .add_flag("--shard-optimizer", o.memory.shard_optimizer,
                "shard optimizer state over the replicas of a stage (ZeRO-1)")
      ->type_name("");
}

void add_running(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kRunning);
  add_path(command, "--config,--recipe", flags.config,
           "TOML file of flags such as `stages = 4`, or a shipped recipe such as gpt2 (see recipes/); the command line "
           "overrides it");
  command.add_flag("--dry-run", flags.dry_run,
                   "print stages, parameters, memory, bubbles and predicted step time of every rank; start nothing");
  add_number(command, "--hang-seconds", o.recovery.hang_seconds,
             "seconds without progress, beyond the longest pause so far, until the job ends and the hanging rank is "
             "reported; time in computation or disk I/O counts 1/20; 0: never (default 2.5; 120 in the first step, "
             "except for stopped ranks)");
  command.add_flag("--verify-messages", o.recovery.verify_messages,
                   "send an XXH3 checksum with every tensor and verify it");
  add_number(command, "--rendezvous-seconds", o.recovery.rendezvous_seconds,
             "maximum time in seconds until all ranks of torchrun, srun or mpirun have connected (default 120)");
  command
      .add_option(
          "--interface", flags.interface,
          "network interface between hosts, such as eth0 (default: GLOO_SOCKET_IFNAME, else the route to rank 0)")
      ->type_name("NAME");
}

void add_output(CLI::App& command, TrainCommandLine& flags) {
  TrainOptions& o = flags.options;
  begin_group(command, heading::kOutput);
  add_path(command, "--metrics", o.output.metrics,
           "write one JSON object per step to this file (default: metrics.jsonl in the folder of --checkpoint)");
  add_text(
      command, "--log-every",
      [&o](const std::string& text) { o.output.log_every = parse_save_interval("--log-every", text); }, "N|TIME",
      "steps between progress lines in a log, or a time such as 30s (default: about 20 lines, and at least one "
      "every 10 s)");
  add_path(command, "--tensorboard", o.output.tensorboard,
           "write the metrics to an event file for TensorBoard in this folder", PathKind::Folder);
  add_path(command, "--trace", o.output.trace,
           "write the ops of the last steps (at most 8) on all ranks as a trace for ui.perfetto.dev");
  add_path(command, "--timeline", o.output.timeline,
           "write an HTML page with the step of median duration, measured and simulated");
  add_path(command, "--report", o.output.report, "write an HTML report at the end: loss, speed, memory, predictions");
  add_path(command, "--op-times", o.output.op_times,
           "write the mean time of every op in seconds, for `chimera simulate --costs`");
  add_path(command, "--tensor-memory", o.output.tensor_memory,
           "write the peak tensor bytes of each rank to this JSON file");
  add_path(command, "--flight-record", o.output.flight_record,
           "folder for the last 20,000 instructions of each rank, for `chimera diagnose`, or none (default: flight in "
           "the folder of --checkpoint)",
           PathKind::Folder);
  command.add_flag("--overwrite", o.output.overwrite, "replace output files of other runs");
  add_path(command, "--export", o.exported.folder,
           "write the trained model to this new folder when the run ends, for transformers", PathKind::Folder);
  add_element_type(command, "--export-dtype", o.exported.dtype,
                   "type of the exported tensors (default: the type of the weights, float32 or float64)");
  add_shard_size(command, "--export-shard-size", o.exported.shard_bytes);
  add_format(command, flags.format, {Format::Text, Format::Json});
}

}  // namespace

void TrainCommandLine::add_to(CLI::App& app) {
  command = &app;
  app.add_flag("--list-combinations", lists_combinations)->group("");  // hidden: tools/print_combinations_page
  add_model_and_data(app, options);
  add_schedule_and_shape(app, *this);
  add_parallelism(app, options);
  add_optimization(app, options);
  add_numbers(app, options);
  add_memory(app, options);
  add_planning(app, *this);
  add_running(app, *this);
  add_checkpoints(app, options);
  add_output(app, *this);
  set_common_flags(
      app, {"--model",      "--from",       "--data",          "--sequence",      "--micro-batch-size", "--steps",
            "--schedule",   "--stages",     "--micro-batches", "--data-parallel", "--tensor-parallel",  "--device",
            "--dtype",      "--optimizer",  "--learning-rate", "--warmup",        "--config",           "--dry-run",
            "--checkpoint", "--save-every", "--resume",        "--export"});
  for (CLI::Option* option : app.get_options()) {  // so that later flags override those of a script
    if (option->get_expected_max() <= 1) option->take_last();
  }
}

void TrainCommandLine::check_flags() const {
  check_recovery(*this);
  require_effect(*command, {"--cooldown-shape"}, options.updates.learning_rate.shape == LearningRateShape::Wsd,
                 "--learning-rate-shape wsd");
  require_effect(*command, {"--export-dtype", "--export-shard-size"}, !options.exported.folder.empty(), "--export");
  require_effect(*command, {"--momentum", "--muon-adjust", "--muon-dtype", "--muon-exclude"},
                 options.updates.optimizer.kind == OptimizerKind::Muon, "--optimizer muon");
  if (options.updates.optimizer.kind != OptimizerKind::Sgd) return;
  for (const char* flag : {"--beta1", "--beta2", "--epsilon"}) {
    if (has(flag)) reject("{} means nothing to --optimizer sgd; leave it out", flag);
  }
}

std::vector<TrainFlag> TrainCommandLine::planned_flags(const PlanOptions& restrictions) const {
  PlanFlags problem_flags = planner;
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
  Predictor predictor(problem);
  const RankedCandidate best = make_plan(predictor, restrictions).ranked.front();
  std::cerr << fmt::format("plan: {}, recompute {}; predicted {:.4g} s a step, {:.4g} GiB\n", describe(best.candidate),
                           to_text(recompute_choice(best.candidate)), best.prediction.step_seconds,
                           best.prediction.peak_memory_bytes / kGiB);
  return train_flags(problem, best.candidate);
}

}  // namespace chimera::apps
