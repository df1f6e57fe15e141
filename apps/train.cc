// `chimera train` runs in three kinds of processes. The user's process resolves flags (merged()), prepares the job, and
// becomes the launcher of the ranks, or trains alone (run()). A rank of our launcher gets the flags as the user's
// process has resolved them, so that all ranks have the same, and goes through the same steps (run_rank()). A process
// of another launcher, such as torchrun, is user's process and rank at once (run_placed()).

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "checkpoint/checkpoint_folder.h"
#include "commands.h"
#include "core/cgroup.h"
#include "core/clock.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/json.h"
#include "core/printable.h"
#include "core/reject.h"
#include "core/resident_memory.h"
#include "core/shell_words.h"
#include "dry_run_report.h"
#include "flags/config_file.h"
#include "flags/files.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "generate/registry.h"
#include "hugging_face/staged_folder.h"
#include "launch/flight/diagnosis.h"
#include "launch/hosts/remote_rank.h"
#include "launch/hosts/run_layout.h"
#include "launch/local/gpu_cores.h"
#include "launch/local/launcher.h"
#include "launch/local/place.h"
#include "program.h"
#include "schedule/schedule_json.h"
#include "train/loop/run.h"
#include "train/observe/observation.h"
#include "train/observe/progress_report.h"
#include "train/setup/combinations.h"
#include "train/setup/device.h"
#include "train/setup/dry_run.h"
#include "train/setup/job_checkpoints.h"
#include "train/setup/option_table.h"
#include "train/setup/prepare_job.h"
#include "train/setup/rerouted_job.h"
#include "train_command_line.h"

namespace chimera::apps {
namespace {

using Words = std::vector<std::string>;

bool is_restart() {
  return std::ranges::any_of(std::array{kStartVariable, "TORCHELASTIC_RESTART_COUNT", "SLURM_RESTART_COUNT"},
                             [](const char* name) {
                               const char* count = std::getenv(name);
                               return count != nullptr && *count != '\0' && std::string_view(count) != "0";
                             });
}

/// Returns the job if `chimera launch` has started this process to supervise ranks on several hosts.
std::optional<RemoteJob> remote_job(const Invocation& invocation) {
  const char* path = std::getenv(kRemoteVariable);
  return path == nullptr || invocation.rank ? std::nullopt : std::optional(read_remote_job(path));
}

void require_groups_on_hosts(const Job& job, const RemoteJob& remote) {
  for (const RemoteHost& host : remote.hosts) {
    const RankPlace first{.rank = host.ranks.first, .world_size = remote.ranks(), .local_size = host.ranks.count};
    require_group_on_one_host(first, static_cast<int>(job.options.parallel.tensor_parallel));
  }
}

void require_positive_shape(const TrainCommandLine& flags) {
  for (const auto& [flag, value] :
       {std::pair("--stages", flags.shape.shape.stages), std::pair("--micro-batches", flags.shape.shape.micro_batches)})
    if (flags.has(flag) && value < 1) reject("{} must be at least 1, not {}", flag, value);
}

/// A rank gets the schedule from its launcher, because standard input can be read only once.
std::shared_ptr<const Schedule> given_schedule(const TrainCommandLine& flags, const Invocation& invocation) {
  flags.shape.require_absent(flags.options.schedule.name);
  // The launcher has read the schedule, also from CSV, and passes it as JSON.
  const bool launched = invocation.rank && !invocation.rank->input_path.empty();
  const std::string& path = launched ? invocation.rank->input_path : flags.options.schedule.name;
  return std::make_shared<const Schedule>(load_schedule(path));
}

/// Without --machine, runs on GPUs are forecast and partitioned for H100s, as gpu_resources() does.
MachineProfile usual_gpus() { return read_machine(machine_file("h100-80gb")); }

/// Sets the profile for partitions and the choice of a schedule.
void set_profile(TrainOptions& options, const std::string& machine, const std::string& network) {
  if (machine == "-" || (machine.empty() && !uses_gpu(options))) return;  // Standard input is read only once
  ScheduleOptions& schedule = options.schedule;
  try {
    MachineProfile profile = machine.empty() ? usual_gpus() : read_machine(machine_file(machine));
    if (machine.empty()) {
      schedule.assumed_bytes = std::exchange(profile.memory_bytes, 0);  // The memory of the job's GPUs is unknown
      profile.reserved = {};
    }
    if (!network.empty()) set_network(profile, network);
    schedule.profile = std::make_shared<const MachineProfile>(std::move(profile));
    if (!uses_gpu(options)) options.planned.profile = machine_file(machine);
  } catch (const ConfigError&) {
    if (!machine.empty()) throw;  // Else the program was copied without its data
  }
}

/// Sets the number of micro-batches from --mini-batch.
void set_micro_batches(TrainOptions& options, const TrainCommandLine& flags) {
  if (!flags.has("--mini-batch")) return;
  const std::int64_t all = flags.planner.mini_batch;
  const std::int64_t group = options.parallel.data_parallel * options.data.micro_batch_size;
  const std::string unit = fmt::format("--data-parallel {} times --micro-batch-size {}", options.parallel.data_parallel,
                                       options.data.micro_batch_size);
  if (all < 1 || group < 1 || all % group != 0) reject("--mini-batch {}: must be a multiple of {}", all, unit);
  const std::int64_t given = options.schedule.given != nullptr
                                 ? std::llround(static_cast<double>(options.schedule.given->micro_batches) *
                                                options.schedule.given->micro_batch_scale)
                                 : (flags.has("--micro-batches") ? options.schedule.shape.micro_batches : all / group);
  if (given * group != all)
    reject("--mini-batch {}: {} micro-batches times {} are {}", all, given, unit, given * group);
  if (options.schedule.given == nullptr) options.schedule.shape.micro_batches = given;
}

/// Sets the options that depend on several flags, or on this process.
TrainOptions resolve(const TrainCommandLine& flags, const Invocation& invocation) {
  TrainOptions options = flags.options;
  if (!options.model.from.empty() && !flags.has("--model")) options.model.name.clear();
  for (std::string* folder : {&options.checkpoint.folder, &options.exported.folder})
    while (folder->size() > 1 && folder->ends_with('/')) folder->pop_back();
  options.resume.is_checked = invocation.rank.has_value();
  options.checkpoint.keeps_last = flags.has("--keep");
  options.checkpoint.keeps_every = flags.has("--keep-every");
  const bool is_first = !invocation.place || invocation.place->rank == 0;
  options.output.reports = !invocation.rank && is_first;
  options.recovery.is_restart = is_restart();
  if (!invocation.rank && invocation.place) options.device.launcher = to_text(invocation.place->launcher);
  options.device.is_supervised = invocation.rank || remote_job(invocation);
  if (options.output.metrics.empty() && !options.checkpoint.folder.empty())
    options.output.metrics = options.checkpoint.folder + "/metrics.jsonl";
  options.updates.usual_peak = !flags.has("--learning-rate");
  options.updates.usual_warmup = !flags.has("--warmup");
  options.data.usual_sequence = !flags.has("--sequence");
  choose_usual_rates(options);
  options.output.files_read = {flags.config, flags.planner.machine};
  set_profile(options, flags.planner.machine, flags.planner.network);
  options.planned.is_planned = flags.has("--plan") || flags.has(kPlannedStepFlag);
  options.planned.is_compared = invocation.rank ? invocation.rank->rank == 0 : is_first;
  if (names_schedule_file(options.schedule.name)) {
    options.schedule.given = given_schedule(flags, invocation);
    options.schedule.file = std::exchange(options.schedule.name, kDefaultSchedule);
    set_micro_batches(options, flags);
    return options;
  }
  require_positive_shape(flags);
  if (!flags.has("--schedule")) {
    options.schedule.name.clear();
    options.schedule.shape_for = [shape = flags.shape](const Generator& generator) {
      return shape.shape_for(generator);
    };
  } else if (options.schedule.name == "none") {
    for (const AxisValues& axis : flags.shape.axes)
      if (axis.is_given()) reject("{} does not apply to --schedule none", axis.axis->flag());
  } else {
    options.schedule.shape = flags.shape.shape_for(find_generator(options.schedule.name));
  }
  options.schedule.shape.stages = flags.shape.shape.stages;
  options.schedule.shape.micro_batches = flags.shape.shape.micro_batches;
  set_micro_batches(options, flags);
  return options;
}

/// Sets the flags that the plan chooses. None of them may be given, except --schedule, --tensor-parallel and
/// --replica-layout, which restrict the plan. Slices are planned on CPUs, where they are measured, and without
/// canonical sums, whose bits depend on them.
void merge_plan(CLI::App& command, const TrainCommandLine& flags) {
  std::vector<std::string> chosen = {"--stages",    "--micro-batches", "--data-parallel", "--micro-batch-size",
                                     "--partition", "--recompute",     "--slice-lengths"};
  for (const ShapeAxis& axis : shape_axes()) chosen.push_back(axis.flag());
  for (const std::string& flag : chosen)
    if (command.get_option(flag)->count() > 0) reject("--plan auto chooses {}", flag);
  const TrainOptions& options = flags.options;
  PlanOptions restrictions{.schedules = {}, .may_shard = !flags.has("--shard-optimizer"), .top = 1};
  if (names_schedule_file(options.schedule.name)) reject("--plan auto chooses --schedule; give a name or nothing");
  if (flags.has("--schedule")) restrictions.schedules = {options.schedule.name};
  if (options.device.kind == DeviceKind::Cpu && options.numbers.reduction == ReductionOrder::Natural)
    restrictions.given.slices = {};
  const bool can_share_layers = options.device.transport == TransportKind::Processes && !options.numbers.cuda_graphs &&
                                !options.numbers.op_graphs && options.schedule.pairs == Pairs::InOrder &&
                                !options.recovery.outlives_ranks() &&
                                options.numbers.reduction == ReductionOrder::Natural;
  if (can_share_layers) restrictions.given.tensor_parallel = {};
  if (flags.has("--tensor-parallel")) restrictions.given.tensor_parallel = {options.parallel.tensor_parallel};
  if (flags.has("--replica-layout")) restrictions.given.replica_layout = options.parallel.replica_layout;
  // The plan becomes part of the command line, which ranks and checkpoints receive.
  const TrainFlags planned = flags.planned_flags(restrictions);
  for (const auto& [name, value] : planned.items()) set_flag(command, name, value_text(value));
  set_flag(command, "plan", "none");  // ranks do not plan again
  command.get_option("--mini-batch")->clear();
}

/// Sets the flags of the file. With fewer --steps than the file's, its warm-up and cooldown are shorter in proportion.
void merge_file(CLI::App& command, TrainCommandLine& flags, bool reports) {
  const std::array parts = {std::pair("--warmup", flags.has("--warmup")),
                            std::pair("--cooldown", flags.has("--cooldown"))};
  const Words typed = command.get_option("--steps")->results();
  command.get_option("--steps")->clear();
  // The batch size of the command line replaces the file's, also if the two use different flags for it.
  const bool gives_batch = flags.has("--mini-batch"), gives_micro_batches = flags.has("--micro-batches");
  merge_config(command, flags.config);
  if (gives_batch && !gives_micro_batches) command.get_option("--micro-batches")->clear();
  if (gives_micro_batches && !gives_batch) command.get_option("--mini-batch")->clear();
  const std::int64_t planned = flags.has("--steps") ? flags.options.updates.steps : 0;
  if (typed.empty()) return;
  set_flag(command, "steps", typed.back());
  const std::int64_t steps = flags.options.updates.steps;
  for (const auto& [flag, is_typed] : parts) {
    if (is_typed || !flags.has(flag) || steps >= planned || steps < 1) continue;
    const LearningRate& rate = flags.options.updates.learning_rate;
    const std::int64_t usual = std::string_view(flag) == "--warmup" ? rate.warmup : rate.cooldown.value_or(0);
    const auto less = static_cast<std::int64_t>(static_cast<double>(usual) * static_cast<double>(steps) /
                                                static_cast<double>(planned));
    if (usual < 1) continue;
    set_flag(command, flag + 2, std::to_string(std::max<std::int64_t>(less, 1)));
    if (!reports) continue;
    print_message("{}: {} {} instead of {}, for {} of {} steps", flags.config, flag, std::max<std::int64_t>(less, 1),
                  usual, steps, planned);
  }
}

/// Precedence, highest first: the command line; the file of --config (alias --recipe); the plan of --plan auto; the
/// defaults of TrainOptions.
TrainOptions merged(CLI::App& command, TrainCommandLine& flags, const Invocation& invocation) {
  if (!flags.config.empty()) {
    flags.config = recipe_file(flags.config);
    merge_file(command, flags, !invocation.place || invocation.place->rank == 0);
    command.get_option("--config")->clear();  // ranks get the values of the file
  }
  require_effect(command, {"--workers"}, flags.has("--plan"), "--plan auto");
  require_effect(command, {"--network"}, flags.has("--machine"), "--machine");
  // Ranks get these flags from their launcher.
  const bool is_joined = invocation.rank || invocation.place || flags.dry_run || remote_job(invocation);
  require_effect(command, {"--interface", "--rendezvous-seconds"}, is_joined,
                 "ranks that torchrun, srun, mpirun or `chimera launch` starts");
  if (!flags.dry_run && flags.has("--format"))
    reject("--format is for --dry-run; --metrics writes JSON during training");
  if (flags.plan == PlanChoice::Auto) merge_plan(command, flags);
  // Another launcher has to restart its ranks itself.
  constexpr std::int64_t kUsualRestarts = 3;
  const bool restarts = flags.options.recovery.recover == Recover::Restart && flags.has("--recover");
  if (restarts && !flags.has("--max-restarts") && !invocation.place)
    flags.options.recovery.max_restarts = kUsualRestarts;
  flags.check_flags();
  return resolve(flags, invocation);
}

MachineProfile machine_of(const Job& job, const std::string& machine) {
  const auto& profile = job.options.schedule.profile;
  if (!machine.empty()) return profile != nullptr ? *profile : read_machine(machine_file(machine));
  if (!uses_gpu(job.options)) return assumed_machine(job, job.options);
  MachineProfile usual = usual_gpus();
  usual.name += ", assumed (--machine: another profile)";
  return usual;
}

/// Never rejects, because plans and scripts may have these flags for other runs.
void report_without_effect(const Job& job) {
  const TrainOptions& options = job.options;
  const auto report = [](bool is_idle, const char* flag, const char* reason) {
    if (is_idle) print_message("{} has no effect: {}", flag, reason);
  };
  const bool has_copies =
      std::ranges::any_of(job.run.rank_groups(), [](const auto& group) { return group.size() > 1; });
  constexpr const char* kNoCopies = "no stage has a second copy";
  report(options.schedule.sync != AllReducePlacement::EagerOpt && !has_copies, "--sync", kNoCopies);
  report(options.memory.shard_optimizer && !has_copies, "--shard-optimizer", kNoCopies);
  report(options.memory.shard_optimizer && has_copies && moments_of(options.updates.optimizer.kind) == 0,
         "--shard-optimizer", "--optimizer sgd has no state");
  report(options.parallel.replica_layout == ReplicaLayout::Far && job.run.ranks.data_parallel == 1, "--replica-layout",
         "there is one data-parallel group");
  const PartitionRule cut = options.schedule.partition.rule;
  report((cut == PartitionRule::Balanced || cut == PartitionRule::Listed) && options.schedule.given == nullptr &&
             options.schedule.name == "none",
         "--partition", "one stage has all layers");
  report(options.recovery.verify_messages && job.num_ranks() == 1, "--verify-messages", "one rank sends no messages");
  report(options.updates.optimizer.decayed != OptimizerOptions().decayed && options.updates.optimizer.weight_decay == 0,
         "--decay", "--weight-decay is 0");
  report(!options.data.validation.empty() && options.data.validate_every == 0, "--validation",
         "--validate-every is 0; the other data are for training");
}

/// Sets the flags that define the run and are not given, so that ranks and `resolved.toml` have them.
void set_usual_flags(CLI::App& command, const Job& job) {
  const TrainOptions& o = job.options;
  const auto set = [&](const char* name, const std::string& value) {
    if (command.count(std::string("--") + name) == 0) set_flag(command, name, value);
  };
  if (o.model.from.empty()) set("model", o.model.name);
  if (o.schedule.given == nullptr) {
    set("schedule", o.schedule.name);
    if (o.schedule.name != "none") set("stages", std::to_string(o.schedule.shape.stages));
    const std::int64_t n =
        o.schedule.shape.micro_batches > 0 ? o.schedule.shape.micro_batches : o.schedule.shape.stages;
    if (o.schedule.name != "none" && command.count("--mini-batch") == 0) set("micro-batches", std::to_string(n));
  }
  for (const Option& option : declared_values(o))
    if (option.has(kResolved)) set(option.flag + 2, option.text());
}

/// Sets the flags that --resume has resolved: ranks use the same checkpoint, and replacements of lost ranks read none.
void set_settled_flags(CLI::App& command, const Job& job) {
  for (const Option& option : declared_values(job.options))
    if (option.has(kSettled)) set_flag(command, option.flag + 2, option.text());
  if (job.replaces_outputs()) set_flag(command, "overwrite", "true");
}

/// Writes the flags beside the metrics: metrics.jsonl has resolved.toml, x.jsonl has x.resolved.toml. An error must not
/// end the run.
void write_resolved(const CLI::App& command, const std::string& metrics) {
  const std::filesystem::path file(metrics);
  if (metrics.empty() || (path_exists(file) && !is_file(file))) return;
  const std::string stem = file.stem() == "metrics" ? "" : file.stem().string() + ".";
  try {
    write_whole((file.parent_path() / (stem + "resolved.toml")).string(),
                "# The flags of the last run; chimera train --config THIS repeats it\n" + to_toml(command));
  } catch (const ConfigError& error) {
    print_message("{}", error.what());
  }
}

ExitCode print_dry_run(CLI::App& command, TrainOptions options, const TrainCommandLine& flags) {
  take_saved_rates(options);
  Job job = partition_job(choose_schedule(options));
  report_without_effect(job);
  // A run whose first checkpoint does not fit on the disk would fail at its end.
  require_space(job.model, job.options, 0);
  if (job.options.recovery.outlives_ranks()) static_cast<void>(spare_patience(job));  // For its errors
  if (uses_gpu(job.options)) lower_programs(job);
  const std::optional<GpuResources> gpus = gpu_resources(job, job.options);
  Forecast expected = forecast(job, machine_of(job, flags.planner.machine));
  expected.shares_memory = flags.planner.machine.empty() && !uses_gpu(options);
  if (options.memory.gib > 0 && !expected.shares_memory) expected.memory_bytes = options.memory.gib * kGiB;
  set_usual_flags(command, job);
  if (flags.format == Format::Json) {
    write_output("", dry_run_json(job, expected, gpus));
  } else {
    write_output("", dry_run_text(job, expected, gpus), flags.format);
    write_output("", "\nflags, as in a file of --config:\n" + to_toml(command));  // To be copied
  }
  if (flags.planner.machine.empty() && !uses_gpu(options)) require_memory(job);  // As the run itself does
  if (expected.fits() || options.memory.ignores) return ExitCode::Success;
  print_message(
      "DOES NOT FIT: a rank needs {} and has {}; use more --stages, a smaller --micro-batch-size or "
      "--recompute full, or give another machine with --machine",
      bytes_text(expected.shares_memory ? expected.mean_bytes() : expected.peak_bytes()),
      bytes_text(expected.memory_bytes));
  return ExitCode::Usage;
}

void report_threads(const Job& job) {
  if (uses_gpu(job.options)) messages().write(warning_of_few_cores(available_cores(), job.local_ranks()));
  warn_about_surplus_threads("--threads", job.options.device.threads, job.local_ranks());
  const char* usual = std::getenv("OMP_NUM_THREADS");
  if (usual == nullptr || job.options.device.threads > 0 || std::getenv("TORCHELASTIC_RUN_ID") != nullptr) return;
  // LibTorch would obey this variable, but each rank sets its own number.
  if (const int threads = intra_op_threads(job.options, job.local_ranks()); std::to_string(threads) != usual) {
    print_message("OMP_NUM_THREADS={} has no effect; each rank has {}, and --threads changes that", usual,
                  counted(threads, "thread"));
  }
}

constexpr std::string_view kNotKept =
    "chimera: the model is not kept: --export writes it after the last step only, and there was no --checkpoint\n";

bool keeps_only_at_end(const Job& job) {
  return job.options.checkpoint.folder.empty() && !job.options.exported.folder.empty();
}

// Read by end_on_signal(), because a handler of signals has no arguments of its own
std::string new_export;       // Folder of --export; empty: none, or it existed before
std::string_view last_words;  // Written at the end; empty: nothing would be lost

void end_on_signal(int signal) {
  // Batch systems send these two to ask for a save.
  const bool asks = last_words.empty() && (signal == SIGUSR1 || signal == SIGUSR2);
  const std::string_view words =
      asks ? "chimera: ended by a signal; nothing is saved without --checkpoint\n" : last_words;
  static_cast<void>(!::write(STDERR_FILENO, words.data(), words.size()));
  ::rmdir(new_export.c_str());  // Only if it is empty
  ::_exit(128 + signal);
}

/// Metrics are complete lines, so a run in one process may end immediately, unless it saves.
void end_cleanly_on_signals(const Job& job) {
  if (keeps_only_at_end(job)) last_words = kNotKept;
  ::signal(SIGINT, end_on_signal);
  if (!job.options.checkpoint.folder.empty()) return;
  for (const int number : kSavingSignals)
    if (::signal(number, end_on_signal) == SIG_IGN) ::signal(number, SIG_IGN);  // nohup
}

int run_placed(const Job& job, const RankPlace& place, const std::string& interface) {
  // Another launcher has fixed the number of processes. It must be the number of ranks, since nothing starts or stops
  // them here.
  const bool has_processes = job.num_ranks() > 1 && job.options.device.transport == TransportKind::Processes;
  if (!has_processes || job.num_ranks() != place.world_size) {
    reject(
        "{} has started {} processes, but this run has {}; start as many as D W T = {}, or change --stages, "
        "--data-parallel and --tensor-parallel",
        to_text(place.launcher), place.world_size,
        has_processes ? fmt::format("{} ranks", job.num_ranks()) : "one process", has_processes ? job.num_ranks() : 1);
  }
  require_descriptors(descriptors_needed(job, job.options), fmt::format("{} ranks", job.num_ranks()),
                      "use fewer ranks");
  require_group_on_one_host(place, static_cast<int>(job.options.parallel.tensor_parallel));
  if (place.rank == 0) output().write(describe(job));
  RankEnvironment rank = join_external_launcher(place);
  if (!interface.empty()) rank.rendezvous.interface = interface;
  if (rank.rendezvous.listens && rank.rendezvous.secret.empty()) {
    print_message(
        "the rendezvous server at {}:{} has no secret: any process that reaches it can join; give "
        "all ranks one CHIMERA_SECRET, or a CHIMERA_SECRET_FILE",
        rank.rendezvous.host, rank.rendezvous.port);
  }
  return run_rank(job, std::move(rank));
}

/// Empty without checkpoints. `typed` is the user's command line.
std::string way_to_continue(const Job& job, Words typed) {
  const std::string& folder = job.options.checkpoint.folder;
  if (folder.empty()) return "";
  // Flight records contain the last op of the culprit.
  std::string text;
  std::vector<std::int64_t> steps;
  try {
    steps = list_steps(folder);
    const Diagnosis diagnosis = diagnose(read_flight_folder(job.options.flight_folder()));
    const auto found = std::ranges::find(diagnosis.ranks, diagnosis.culprit.value_or(-1), &RankFinding::rank);
    if (found != diagnosis.ranks.end() && found->at) text += fmt::format("  last: {}\n", to_text(*found->at));
  } catch (const Error&) {  // The rest of the report is useful without it
  }
  const std::string why = fmt::format("  why: chimera diagnose {}\n", shell_word(folder));
  if (steps.empty())
    return text + fmt::format("  newest checkpoint: none\n  start again: {}\n{}", shell_command(typed), why);
  const Words automatic = {"--resume", "auto"};
  const bool resumes = std::search(typed.begin(), typed.end(), automatic.begin(), automatic.end()) != typed.end() ||
                       std::ranges::count(typed, "--resume=auto") > 0;
  if (!resumes) typed.insert(typed.end(), automatic.begin(), automatic.end());
  return text + fmt::format("  newest checkpoint: {}\n  continue: {}\n{}", checkpoint_path(folder, steps.back()),
                            shell_command(typed), why);
}

RankGroups second_shards(const Job& job) {
  RankGroups all;
  if (!job.has_second_shards) return all;
  for (const RankGroups& shards : job.shards()) all.insert(all.end(), shards.begin(), shards.end());
  return all;
}

int run(const Job& job, const std::vector<std::string>& arguments, ProgramEntry entry,
        const std::optional<RemoteJob>& remote) {
  const bool has_twins = job.options.recovery.outlives_ranks();
  require_descriptors(descriptors_needed(job, job.options), fmt::format("{} ranks", job.num_ranks()),
                      "use fewer ranks");
  // A new run in an old folder must not leave out the steps that an earlier run excluded.
  if (job.first_step == 0 && !job.options.checkpoint.folder.empty()) {
    forget_left_out(job.options.checkpoint.folder);
    save_order(job.options.checkpoint.folder, {});  // Deletes the order of an earlier run
  }
  // Written and drained before ranks start, so that their messages follow the description.
  ::signal(SIGPIPE, SIG_IGN);  // a run continues without a reader of its output
  if (!remote && !path_exists(job.options.exported.folder)) new_export = job.options.exported.folder;
  output().write(describe(job));
  output().drain(kDrainAfterFailure);
  if (output().error() != 0) finish_output(kDrainAfterFailure);
  if (remote && job.options.device.transport == TransportKind::Threads)
    reject("--transport threads: `chimera launch` starts a process for each rank; leave it out");
  if (!remote && (job.num_ranks() == 1 || job.options.device.transport == TransportKind::Threads)) {
    // There are no other processes to end.
    end_cleanly_on_signals(job);
    return run_threads(job);
  }
  LaunchPlan plan{
      .ranks = static_cast<int>(job.num_ranks()),
      .arguments = arguments,
      .input = job.options.schedule.given == nullptr ? "" : to_json(*job.options.schedule.given),
      .entry = uses_gpu(job.options) ? nullptr : entry,
      .hang = to_milliseconds(job.options.recovery.hang_seconds),
      .hang_at_start = to_milliseconds(job.options.recovery.hang_seconds_at_start()),
      // On GPUs a new process takes as long as at the start: it loads libraries and connects.
      .hang_after_loss = to_milliseconds(uses_gpu(job.options) ? job.options.recovery.hang_seconds_at_start() : 0),
      .waits_idle = !uses_gpu(job.options),
      .records_steps = job.options.numbers.cuda_graphs,
      .saves = !job.options.checkpoint.folder.empty(),
      .most_restarts = static_cast<int>(job.options.recovery.max_restarts),
      .next_start = [&job](std::int64_t failed_step) { return next_start(job, failed_step); },
      .most_recoveries = has_twins ? static_cast<int>(job.options.recovery.max_recoveries) : 0,
      .copies = job.ranks().in_lanes(job.run.rank_groups()),
      .copies_of_group = job.options.parallel.tensor_parallel,
      .shards = second_shards(job),
      .replacement_arguments = {"--resume", "none"},
      .spare_patience = has_twins ? spare_patience(job) : std::nullopt,
      .last_step = job.options.updates.steps,
      .flight_folder = job.options.flight_folder(),
      .flight_job = flight_job(job, job.options.planned)};
  if (remote) {
    use_relays(plan, *remote);
    require_groups_on_hosts(job, *remote);
  }
  return launch(plan);
}

}  // namespace

TrainOptions train_options(const std::vector<std::string>& words) {
  CLI::App command;
  TrainCommandLine flags;
  flags.add_to(command);
  try {
    command.parse(Words(words.rbegin(), words.rend()));  // CLI11 takes the words in reverse order
    return choose_schedule(merged(command, flags, Invocation{})).options;
  } catch (const CLI::ParseError& error) {
    reject("{}; see `chimera train --help`", error.what());
  }
}

Contender training_contender(const std::string& name, const Words& words) {
  (void)prepare_job(train_options(words));
  return {name, training_command(words)};
}

void add_train(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand(kTrain.name, kTrain.description);
  command->footer(
      "Examples:\n"
      "  chimera train --data book.txt --validate-every 25\n"
      "  chimera train --data book.txt --checkpoint run --save-every 10min --resume auto --max-restarts 10\n"
      "\nExit codes: 1 the run failed; 2 wrong usage; 75 saved after a signal; 130 Ctrl-C; 143 SIGTERM.\n"
      "\nMore: docs/tutorial.md");
  auto flags = std::make_shared<TrainCommandLine>();
  flags->add_to(*command);
  command->callback([command, flags, &invocation, &exit_code] {
    if (flags->lists_combinations) return write_output("", json_text(combinations_json()) + "\n");
    keep_freed_memory();
    TrainOptions options = merged(*command, *flags, invocation);
    if (!options.model.from.empty() && !invocation.rank) {  // ranks use the same model folder
      options.model.from = resolve_model_folder(options.model.from, available_cores());
      set_flag(*command, "from", options.model.from);
    }
    if (flags->dry_run) {
      exit_code = static_cast<int>(print_dry_run(*command, options, *flags));
      return;
    }
    const std::optional<RemoteJob> remote = remote_job(invocation);
    if (remote) options.device.local_ranks = remote->hosts.front().ranks.count;
    if (const auto& place = invocation.rank ? invocation.rank->remote : invocation.place) {
      options.device.local_ranks = place->local_size;
      assign_gpu(options, place->local_rank, place->local_size);
    }
    const Job job = in_chosen_order(prepare_job(choose_schedule(options)));
    if (job.options.output.reports) {
      report_threads(job);
      report_without_effect(job);
    }
    if (!invocation.rank) set_usual_flags(*command, job);
    if (job.options.output.reports) write_resolved(*command, job.options.output.metrics);
    if (!options.resume.from.empty()) set_settled_flags(*command, job);
    if (invocation.rank) {
      RankEnvironment rank = *invocation.rank;
      if (rank.remote) require_group_on_one_host(*rank.remote, static_cast<int>(job.options.parallel.tensor_parallel));
      if (!flags->interface.empty()) rank.rendezvous.interface = flags->interface;
      exit_code = run_rank(job, std::move(rank));
    } else if (invocation.place) {
      exit_code = run_placed(job, *invocation.place, flags->interface);
    } else {
      Words words = given_arguments(*command);
      words.insert(words.begin(), kTrain.name);
      exit_code = run(job, words, invocation.entry, remote);
      if (exit_code == 0) return;
      const bool has_failed = exit_code == static_cast<int>(ExitCode::No);
      if (!new_export.empty()) {
        remove_unfinished(new_export);
        ::rmdir(new_export.c_str());
      }
      // The export may be complete, or a rank may have saved the model and said where.
      const std::string& exported = job.options.exported.folder;
      const bool is_kept = path_exists(exported + "/config.json") || path_exists(exported + ".checkpoint");
      if ((has_failed || exit_code > 128) && keeps_only_at_end(job) && !is_kept)
        messages().write(std::string(kNotKept));
      if (has_failed) messages().write(way_to_continue(job, remote ? remote->typed : invocation.arguments));
      messages().drain(kDrainAfterFailure);
    }
  });
}

}  // namespace chimera::apps
