#include "train/setup/prepare_job.h"

#include <fmt/chrono.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <filesystem>
#include <iterator>
#include <limits>
#include <numeric>
#include <system_error>
#include <utility>

#include "core/cgroup.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/limits.h"
#include "core/mapped.h"
#include "core/printable.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "engine/canonical.h"
#include "engine/programs.h"
#include "hugging_face/model_folder.h"
#include "launch/hosts/hosts.h"
#include "model_config/footprint.h"
#include "model_config/matrices.h"
#include "model_config/parameters.h"
#include "plan/plan.h"
#include "runtime/gradient_sums.h"
#include "tokenizer/tokenizer_folder.h"
#include "train/setup/combinations.h"
#include "train/setup/data_tokenizer.h"
#include "train/setup/device.h"
#include "train/setup/dry_run.h"
#include "train/setup/job_checkpoints.h"
#include "train/setup/job_outputs.h"
#include "train/setup/option_table.h"
#include "transport/gloo/gloo_transport.h"

// From options to a job in three steps, each of which more commands share than the next. resolve_job() needs sizes
// only; partition_job() cuts the layers into stages, which needs costs; prepare_job() needs this machine and its disk:
// device, memory, data, checkpoints and outputs.

namespace chimera {
namespace {

void require_possible(const TrainOptions& options) {
  for (const Option& option : declared_values(options)) option.require_in_range();
  if (!uses_gpu(options)) require_numbers(options, {});  // GPUs: see require_device()
  if (options.numbers.reduction_blocks > 0 && options.numbers.reduction != ReductionOrder::Canonical)
    reject("--reduction-blocks is for --reduction canonical");
  for (const std::string& fault : {find_invalid_option(options.updates.learning_rate, options.updates.steps),
                                   find_invalid_option(options.updates.optimizer)})
    if (!fault.empty()) throw ConfigError("--" + fault);
  if (!(options.model.dropout >= 0 && options.model.dropout < 1))
    reject("--dropout must be at least 0 and below 1, not {:g}", options.model.dropout);
}

RunRequest request_of(const TrainOptions& options) {
  return {.schedule = {options.schedule.name, options.schedule.shape, options.schedule.given},
          .data_parallel = options.parallel.data_parallel,
          .replica_layout = options.parallel.replica_layout,
          .micro_batch_size = options.data.micro_batch_size};
}

RunShape shape_of(const TrainOptions& options) {
  try {
    return run_shape(request_of(options));
  } catch (const ScheduleError& error) {
    if (options.schedule.given == nullptr) throw;
    reject("{}: {}; `chimera check {}` lists all violations", options.schedule.file, error.what(),
           shell_word(options.schedule.file));
  }
}

/// Products of the device by the bytes that it moves meanwhile (flop_loads()). GPUs: 70 % of an H100's peaks, and its
/// 3.35 TB/s.
double flops_per_byte(const TrainOptions& options) {
  if (!uses_gpu(options)) return kFlopsPerByteOfCpu;
  if (options.numbers.dtype == DataType::BFloat16) return 200;
  return options.numbers.tf32 ? 100 : 14;
}

/// Returns the workload of a rank of the job.
Workload rank_workload(const JobShape& job, const TrainOptions& options) {
  Workload workload = workload_of(options);
  workload.tensor_parallel = job.tensor_parallel;
  workload.cuts_tokens = job.cuts_tokens;
  return workload;
}

/// Returns the times of --machine; empty without it, or if the profile does not cover the model.
std::optional<ModelLoads> measured_loads(const JobShape& job, const MachineProfile* profile, const Workload& workload) {
  if (profile == nullptr) return std::nullopt;
  const PlanProblem problem{.model = job.model, .machine = *profile, .workload = workload};
  const Candidate candidate{.shape = {.slices = job.run.schedule.slices},
                            .micro_batch_size = workload.micro_batch_size,
                            .tensor_parallel = job.tensor_parallel};
  try {
    return machine_loads(problem, candidate, job.run.schedule.micro_batch_scale);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

/// Returns a worker's memory by --memory or, on GPUs, by --machine; 0: not known.
double memory_of_worker(const TrainOptions& options) {
  if (options.memory.gib > 0) return options.memory.gib * kGiB;
  return uses_gpu(options) && options.schedule.profile != nullptr ? options.schedule.profile->memory_bytes : 0;
}

/// Returns the part of it that is for tensors; infinity if it is not known.
double tensor_memory(const TrainOptions& options, std::int64_t ranks) {
  const double memory = memory_of_worker(options);
  if (memory == 0) return std::numeric_limits<double>::infinity();
  return memory - reserved_of(options, ranks, memory).all();
}

std::vector<StageLayers> partition_of(const JobShape& job, const TrainOptions& options) {
  if (request_of(options).schedule.is_unpipelined()) return even_partition(job.model.layers, 1);
  // Blocks at a level add little time, so such stages are balanced as if nothing were recomputed.
  const StageChoice& recompute = options.memory.recompute;
  return resolve_partition(options.schedule.partition,
                           {.schedule = job.run.schedule,
                            .model = job.model,
                            .workload = rank_workload(job, options),
                            .recompute = recompute.rule != StageRule::None && !recompute.counts_blocks(),
                            .flops_per_byte = flops_per_byte(options),
                            .loads = measured_loads(job, options.schedule.profile.get(), workload_of(options)),
                            .memory = tensor_memory(options, job.num_ranks())});
}

/// Sets what depends on the partition.
Job cut_job(Job job, std::vector<StageLayers> partition) {
  job.partition = std::move(partition);
  if (job.options.numbers.reduction == ReductionOrder::Canonical)
    job.canonical = canonical_reduction(job.run, job.options.numbers.reduction_blocks, "--reduction-blocks");
  const TrainOptions& options = job.options;
  job.stages = choose_stages(
      {.recompute = options.memory.recompute, .offload = options.memory.offload, .memory_gib = options.memory.gib},
      job.run.schedule, job.partition, [job](const std::vector<StageLayers>& cut) mutable {
        job.partition = cut;
        return bytes_of_stages(job, job.options);
      });
  set_levels(job.partition, job.stages.blocks);
  set_on_device(job.partition, job.stages.offload_blocks);
  return job;
}

constexpr double kSlowCore = 3e10;  // FLOP/s in float32
constexpr double kFastCore = 2e11;

void require_fitting(const JobShape& job, const TrainOptions& options) {
  require_whole_micro_batches(job.run, "--micro-batch-size");
  require_fitting_batch(job.model, options.data.sequence, options.data.micro_batch_size);
  if (job.num_ranks() > kMaxRanks)
    reject("{} ranks (D W T): at most {} ranks are possible", job.num_ranks(), kMaxRanks);
}

/// Returns [rank of a lane]: a lower bound on bytes of weights, gradients, optimizer state and buffers of canonical
/// reduction.
std::vector<double> least_bytes(const JobShape& job, const StageModel& model) {
  const std::vector<StageMemory>& stages = model.costs.memory;
  const auto groups = job.run.rank_groups();
  std::vector<double> held(static_cast<std::size_t>(job.run.num_ranks()));
  for (std::size_t s = 0; s < stages.size(); ++s) {
    // A worker that holds both ends has the tied matrix once, so the last stage counts without it.
    const bool repeats = job.model.tied && s > 0 && s + 1 == stages.size();
    const TensorPlace place{0, job.tensor_parallel};
    const auto tied = static_cast<double>(repeats ? held_elements(tied_parameter(job.model), place) : 0);
    const double share = 1 - tied / static_cast<double>(model.footprints[s].parameters);
    for (std::size_t i = 0; i < groups[s].size(); ++i) {
      const std::int64_t spare = job.canonical ? spare_buffers(job.canonical->orders[s].parts[i]) : 0;
      const double gradients = stages[s].gradients * static_cast<double>(1 + spare);
      held[groups[s][i].index()] += share * (stages[s].weights + gradients + stages[s].optimizer);
    }
  }
  return held;
}

std::vector<std::int64_t> given_slices(const TrainOptions& options, std::int64_t slices) {
  const std::vector<std::int64_t>& lengths = options.schedule.slice_lengths;
  const bool positive = std::ranges::all_of(lengths, [](std::int64_t length) { return length > 0; });
  std::vector<std::int64_t> bounds = {0};
  std::partial_sum(lengths.begin(), lengths.end(), std::back_inserter(bounds));
  if (positive && std::ssize(lengths) == slices && bounds.back() == options.data.sequence) return bounds;
  reject("--slice-lengths {}: must be {} positive numbers that add up to --sequence {}", fmt::join(lengths, ","),
         slices, options.data.sequence);
}

std::vector<std::int64_t> slice_bounds(const JobShape& job, const TrainOptions& options) {
  const std::int64_t slices = job.run.schedule.slices;
  if (slices == 1) {
    if (!options.schedule.slice_lengths.empty()) reject("--slice-lengths is for --slices");
    return {};
  }
  if (slices > options.data.sequence) {
    const std::string source = options.schedule.given == nullptr ? "--slices" : options.schedule.file + ": slices";
    reject("{} {}: a sequence has only {} tokens", source, slices, options.data.sequence);
  }
  if (options.schedule.slice_lengths.size() > 1) return given_slices(options, slices);
  // Later slices attend to more tokens, so slices of equal time become shorter toward the end.
  const bool equal = !options.schedule.slice_lengths.empty();
  return balanced_slices(slices, options.data.sequence, equal ? 0 : attention_share(job.model, options.data.sequence));
}

/// A part of a name that no matrix has would have no effect.
void require_excluded_matrices(const ModelConfig& model, const std::vector<std::string>& exclude) {
  for (const std::string& part : exclude) {
    std::string other;
    const auto has_part = [&](const ParameterSpec& parameter) {
      if (logical_matrices(parameter.name, parameter.shape).empty()) return false;
      other = parameter.name;
      return other.find(part) != std::string::npos;
    };
    if (std::ranges::any_of(all_parameters(model), has_part)) continue;
    reject("--muon-exclude {}: is in no name of a matrix of model {}, such as {}", part, model.name, other);
  }
}

void require_few_ops(const Schedule& schedule, std::int64_t steps) {
  const std::int64_t most = std::numeric_limits<std::int32_t>::max() / schedule.micro_batches;
  if (!schedule.updates || steps <= most) return;
  reject("--steps {}: at most {} steps of {} micro-batches run by an asynchronous schedule", steps, most,
         schedule.micro_batches);
}

bool is_text(const TokenView& source) {
  return std::ranges::all_of(source.stream().files(),
                             [](const TokenFile& file) { return file.layout().format == kTextFormat; });
}

void require_documents(const DataOptions& options, const Corpus& corpus, std::int64_t vocabulary) {
  const std::vector<TokenView>& sources = corpus.split(Split::Train).sources;
  if (options.end_of_document != kNoToken) {
    if (options.documents == Documents::Pack) reject("--end-of-document is for --documents split");
    const auto has_mark = [](const TokenFile& file) { return file.layout().mark.has_value(); };
    const bool has_effect = std::ranges::any_of(
        sources, [&](const TokenView& source) { return std::ranges::any_of(source.stream().files(), has_mark); });
    if (!has_effect) reject("--end-of-document is for raw and llm.c tokens, and --data has none; leave it out");
  }
  if (options.documents == Documents::Pack) return;
  bool separates_any = false;
  for (const TokenView& source : sources) {
    const bool separates = source.stream().separates_documents();
    separates_any = separates_any || separates;
    if (separates || is_text(source)) continue;
    reject("--documents split: {}: no token of the vocabulary is known to separate its documents; {}", source.name(),
           options.end_of_document == kNoToken
               ? "give --end-of-document"
               : fmt::format("--end-of-document {} is not below its size, {}", options.end_of_document, vocabulary));
  }
  if (!separates_any) {
    reject(
        "--documents split: {}: a text file is one document; use pack, or give a folder of texts, or tokens of "
        "`chimera tokenize`",
        sources.front().name());
  }
}

void open_data(Job& job) {
  const TrainOptions& options = job.options;
  if (options.data.training.empty()) reject("--data is missing; give a UTF-8 text file, or one of tokens");
  const DataTokenizer tokenizer(options.data.tokenizer, job.from.get(), job.model);
  CorpusOptions data{.data = options.data.training,
                     .validation = options.data.validation,
                     .seed = static_cast<std::uint64_t>(options.data.seed),
                     .tokens = tokenizer.token_options()};
  if (options.data.end_of_document != kNoToken) data.tokens.end_of_document = options.data.end_of_document;
  job.data.corpus = std::make_shared<Corpus>(open_corpus(data));
  if (options.output.reports)
    for (const std::string& line : job.data.corpus->opened.ignored_files_note) print_message(line);
  require_documents(options.data, *job.data.corpus, job.model.vocabulary);
  SampleOptions samples = tokenizer.sample_options(job.data.corpus->opened.is_plain_text);
  samples.sequence = options.data.sequence;
  samples.seed = static_cast<std::uint64_t>(options.data.seed);
  samples.documents = options.data.documents;
  job.data.tokenizer = tokenizer.source(job.data.corpus->opened.is_plain_text);
  job.data.tokenizer_texts = tokenizer_texts(job.data.tokenizer);
  job.data.training.emplace(job.data.corpus->split(Split::Train), samples);
  if (options.data.validate_every > 0) job.data.validation.emplace(job.data.corpus->split(Split::Validation), samples);
}

/// Returns 0 if unknown. A profile of this machine has only the peak of CPUs. One process of the job reports.
double peak_flops(const TrainOptions& options, const JobShape& job) {
  if (uses_gpu(options)) {
    const GpuPeak peak = gpu_peak(options, job.num_ranks());
    if (peak.flops == 0 && options.output.reports)
      print_message("shows no MFU: the peak of {} is not known", peak.what);
    return peak.flops;
  }
  const std::string& profile = options.planned.profile;
  if (profile.empty()) return 0;
  const double peak = matrix_peak(*options.schedule.profile, options.numbers.dtype, job.num_ranks(),
                                  intra_op_threads(options, job.local_ranks()));
  if (peak == 0 && !options.planned.is_planned) {
    reject("--machine {}: has no matrix_flops of {}; `chimera profile` measures them", profile,
           to_text(options.numbers.dtype));
  }
  return peak;
}

/// Sets the planned times of ops by the profile of --machine, and of a step unless a plan gives it. Does nothing
/// without a profile, or if it does not cover the job.
void plan_by_profile(Job& job) {
  PlannedTimes& planned = job.options.planned;
  if (planned.profile.empty() || !planned.is_compared) return;
  try {
    const MachineProfile& machine = *job.options.schedule.profile;
    Forecast made = forecast(job, machine);
    if (!(planned.step_seconds > 0)) planned.step_seconds = made.step_seconds;
    planned.ops = std::move(made.op_seconds);
    std::error_code unknown;
    const auto written = std::chrono::file_clock::to_sys(std::filesystem::last_write_time(planned.profile, unknown));
    planned.by = fmt::format("{} ({} of {:%Y-%m-%d})", machine.name, planned.profile,
                             std::chrono::floor<std::chrono::seconds>(written));
  } catch (const ConfigError&) {  // the run needs no plan
  }
}

}  // namespace

Job resolve_model(const TrainOptions& options) {
  require_possible(options);
  Job job;
  job.options = options;
  if (options.model.from.empty()) {
    job.model = with_overrides(find_model(options.model.name), options.model.overrides);
  } else {
    job.from = std::make_shared<const ModelFolder>(options.model.from);
    job.model = job.from->model();
    require_no_contradiction(*job.from, options.model.name, options.model.overrides);
  }
  DataOptions& data = job.options.data;
  if (data.usual_sequence) data.sequence = std::min(data.sequence, job.model.positions);
  return job;
}

Job resolve_shape(Job job) {
  const TrainOptions& options = job.options;
  job.run = shape_of(options);
  job.run.tied = job.model.tied;
  job.tensor_parallel = options.parallel.tensor_parallel;
  job.ranks_of_host = options.device.local_ranks;
  job.has_second_shards = options.memory.shard_optimizer && options.recovery.outlives_ranks();
  require_fitting(job, options);
  job.slice_bounds = slice_bounds(job, options);
  const auto is_cut = [t = job.tensor_parallel](std::int64_t bound) { return bound % t == 0; };
  job.cuts_tokens = job.tensor_parallel > 1 && options.parallel.sequence_parallel == SequenceParallel::Auto &&
                    is_cut(options.data.sequence) && std::ranges::all_of(job.slice_bounds, is_cut);
  require_few_ops(job.run.schedule, options.updates.steps);
  if (options.parallel.tensor_parallel > 1) require_divisible(job.model, options.parallel.tensor_parallel);
  if (const std::string refusal = find_refusal(job); !refusal.empty()) throw ConfigError(refusal);
  if (options.updates.optimizer.kind == OptimizerKind::Muon)
    require_excluded_matrices(job.model, options.updates.optimizer.muon.exclude);
  return job;
}

Job partition_job(Job job) {
  const PartitionRule rule = job.options.schedule.partition.rule;
  const Job chosen = cut_job(job, partition_of(job, job.options));
  auto even = even_partition(job.model.layers, std::ssize(chosen.partition));
  if (rule != PartitionRule::Auto || chosen.partition == even) return chosen;
  const Job other = cut_job(std::move(job), std::move(even));
  const TrainOptions& options = chosen.options;
  const auto threads = static_cast<double>(std::max<std::int64_t>(options.device.threads, 1));
  // Unlike resolve_partition(), a forecast counts messages, sums and updates. All ranks must agree, so without a
  // profile it uses the speeds of slow and fast cores, not of this machine.
  const auto is_slower_on = [&](const MachineProfile& machine) {
    return forecast(chosen, machine).step_seconds > forecast(other, machine).step_seconds;
  };
  const auto is_slower_at = [&](double speed) { return is_slower_on(machine_at(speed * threads, chosen, options)); };
  try {
    const bool is_slower = options.schedule.profile != nullptr ? is_slower_on(*options.schedule.profile)
                                                               : is_slower_at(kSlowCore) || is_slower_at(kFastCore);
    return is_slower ? other : chosen;
  } catch (const ConfigError&) {  // The profile does not cover the model
    return chosen;
  }
}

StageModel bytes_of_stages(const JobShape& job, const TrainOptions& options) {
  StageModel model =
      stage_bytes(job.model, job.partition, job.run.schedule, rank_workload(job, options), flops_per_byte(options));
  model.costs.slices.bounds = as_fractions(job.slice_bounds);
  model.costs.buffers.receives_ahead = receives_ahead(options);
  const auto groups = job.run.rank_groups();
  for (std::size_t s = 0; s < model.costs.memory.size() && !job.run.schedule.updates; ++s) {
    double& bytes = model.costs.memory[s].optimizer;
    if (options.memory.shard_optimizer)
      bytes *= (job.has_second_shards ? 2.0 : 1.0) / static_cast<double>(groups[s].size());
    else
      bytes += gathered_bytes(job.model, job.partition[s], rank_workload(job, options), groups[s].size());
  }
  if (options.schedule.pairs == Pairs::Together) model.costs.pair = 1;
  model.reserved_bytes = reserved_of(options, job.num_ranks(), memory_of_worker(options)).all();
  return model;
}

void lower_programs(Job& job) {
  const std::int64_t ahead = receives_ahead(job.options);
  if (job.options.data.validate_every > 0) job.programs.validation = validation_program(job.run, ahead);
  const auto& [recompute, offload, blocks, offload_blocks] = job.stages;
  job.programs.pairs = job.options.schedule.pairs;
  job.programs.sync = job.options.schedule.sync;
  if (job.run.schedule.updates) {
    // All stretches between flushes have one length, except the last, which may be shorter.
    for (const std::int64_t step : {std::int64_t{0}, job.options.updates.steps - 1}) {
      const std::int64_t steps = job.flush_interval(step).steps;
      if (!job.programs.runs.contains(steps))
        job.programs.runs.emplace(steps, continuous_program(job.run, steps, recompute, offload));
    }
    return;
  }
  job.programs.training = training_program(
      job.run, {.receives_ahead = ahead,
                .recompute = recompute,
                .offload = offload,
                .all_reduces = {.every_stage = job.canonical.has_value(), .placement = job.options.schedule.sync},
                .pairs = job.options.schedule.pairs});
}

void require_memory(const Job& job) {
  if (job.options.memory.ignores) return;
  constexpr std::int64_t kMostOfACore = 16;
  if (job.local_ranks() > kMostOfACore * available_cores()) {
    reject("{} ranks on a machine with {}: more than {} a core; start them on several machines, or give {}",
           job.local_ranks(), counted(available_cores(), "core"), kMostOfACore, "--no-memory-check");
  }
  // The smallest ranks are added, because this host's ranks are not known before the rendezvous.
  StageModel bytes = bytes_of_stages(job, job.options);
  const auto& [recompute, offload, blocks, offload_blocks] = job.stages;
  if (uses_gpu(job.options)) {
    bytes.reserved_bytes = 0;
    const auto tensors = peaks_by_order(job.run.schedule, bytes, recompute, offload);
    return require_gpu_memory(job.options, job.num_ranks(), tensors);
  }
  std::vector<double> held = least_bytes(job, bytes);
  const std::vector<double> peaks = peaks_by_order(job.run.schedule, bytes, recompute, offload);
  for (std::size_t rank = 0; rank < held.size(); ++rank) {
    const GroupWorker place = job.run.ranks.place(RankId(static_cast<std::int64_t>(rank)));
    held[rank] = std::max(held[rank], peaks[place.worker.index()]);
  }
  std::ranges::sort(held);
  const auto refuse = [](const std::string& why) {
    reject(
        "DOES NOT FIT: {}; use more --stages on more machines, a smaller --micro-batch-size or --recompute full, or "
        "--no-memory-check",
        why);
  };
  const double given = job.options.memory.gib * kGiB;
  if (given > 0 && held.back() > given)
    refuse(fmt::format("a rank needs {} and has {} (--memory)", bytes_text(held.back()), bytes_text(given)));
  // A lane has one rank of each T, and a save a copy of all weights and optimizer state.
  const auto here = static_cast<double>(job.local_ranks()) / static_cast<double>(job.num_ranks());
  double needed = job.options.checkpoint.folder.empty() ? 0 : here * checkpoint_bytes(job.model, job.options);
  for (std::int64_t i = 0; i < job.local_ranks(); ++i)
    needed += held[static_cast<std::size_t>(i / job.tensor_parallel)];
  const double available = available_memory_bytes();
  if (needed <= available) return;
  refuse(fmt::format("the {} on this machine need{} {}, and it (or its control group) has {}",
                     counted(job.local_ranks(), "rank"), job.local_ranks() == 1 ? "s" : "", bytes_text(needed),
                     bytes_text(available)));
}

Job prepare_job(Job shape) {
  if (shape.local_ranks() > kMaxRanksOfHost) {
    reject("{} ranks (D W T): at most {} ranks run on one machine; start them on several (docs/clusters.md)",
           shape.num_ranks(), kMaxRanksOfHost);
  }
  Job job = partition_job(std::move(shape));
  // Errors that need no GPU, data or disk come first, then the cheap ones, so that a wrong flag ends a start at once.
  const TrainOptions& options = job.options;
  require_device(options, job.local_ranks());
  job.parameters = mapped(all_parameters(job.model), &ParameterSpec::name);
  std::ranges::sort(job.parameters);
  require_memory(job);
  lower_programs(job);
  // Only for its errors: NCCL blocks of too many communicators would not fit on the GPU together, and the job would
  // hang.
  static_cast<void>(gpu_resources(job, job.options));
  open_data(job);
  job.data.prompt = training_prompt(options, job.data.tokenizer, job.model);
  open_checkpoints(job);
  // Ranges of another run in this folder say nothing about this one.
  const bool goes_on = job.first_step > 0 || options.resume.is_checked;  // Otherwise the file is from another run
  if (goes_on && !options.checkpoint.folder.empty()) job.left_out = read_left_out(options.checkpoint.folder);
  require_outputs(job);
  if (!options.exported.folder.empty()) require_exportable(job.model, options);
  job.peak_flops = peak_flops(options, job);
  plan_by_profile(job);
  return job;
}

std::int64_t descriptors_needed(const JobShape& job, const TrainOptions& options) {
  constexpr std::int64_t kOwn = 20;  // Standard streams, launcher channels, open files
  constexpr std::int64_t kBlocks = 8;
  const std::int64_t ranks = job.num_ranks();
  const RankGroups groups = job.rank_groups();
  // Of a parameter group on a rank: gradients, both uses of a tied matrix, and blocks of canonical reduction
  const auto replicas = static_cast<std::int64_t>(job.run.schedule.placement.num_replicas());
  const std::int64_t files = job.canonical ? 2 + kBlocks * replicas : 2;
  std::vector<std::int64_t> held(static_cast<std::size_t>(ranks), 0);  // [rank]: parameter groups
  for (const auto& group : groups)
    for (const RankId rank : group) ++held[rank.index()];
  const std::int64_t flights = options.flight_folder().empty() ? 0 : 1;  // a file for each rank
  if (options.device.transport == TransportKind::Threads || ranks == 1)
    return kOwn + files * std::accumulate(held.begin(), held.end(), std::int64_t{0}) + flights * ranks;
  return kOwn + flights +
         std::max(ranks,
                  files * std::ranges::max(held) + gloo_descriptors(ranks, groups, communicating_pairs(job, options)));
}

}  // namespace chimera
