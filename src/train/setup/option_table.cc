#include "train/setup/option_table.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <type_traits>
#include <utility>

#include "answers/cost_request.h"
#include "core/json.h"
#include "core/limits.h"
#include "core/mapped.h"
#include "core/value_text.h"
#include "hugging_face/config_json.h"

// All options of a run in one place, with flag, help, range and what else has to know of it: the comparison of ranks
// (kEqual), checkpoints (kRecorded) and resolved.toml (kResolved). A new option needs a field of TrainOptions and a
// line here. The table is made anew for each TrainOptions, because its entries refer to fields of that object.

namespace chimera {
namespace {

using Json = nlohmann::ordered_json;

constexpr double kMany = 1'000'000'000;
constexpr double kWeek = 7 * 24 * 3600;
constexpr std::int64_t kLargest = std::numeric_limits<std::int64_t>::max();
constexpr auto kAnyInteger = static_cast<double>(kLargest);

constexpr const char* kFile = "FILE";
constexpr const char* kFolder = "DIR";

std::string interval_text(const SaveInterval& interval) {
  return interval.steps > 0 ? fmt::format("{}", interval.steps) : fmt::format("{:g}s", interval.seconds);
}

/// Returns the value as the text of a flag, or as a number.
template <class Value>
Json json_of(const Value& value) {
  if constexpr (NamedEnum<Value>)
    return to_text(value);
  else if constexpr (std::is_same_v<Value, SaveInterval>)
    return interval_text(value);
  else if constexpr (std::is_same_v<Value, PartitionChoice>)
    return to_text(value);
  else
    return value;
}
template <class Value>
Json json_of(const std::optional<Value>& value) {
  return value ? json_of(*value) : Json();
}

std::vector<std::int64_t> tokens_of_slices(const std::string& text) {
  std::vector<std::int64_t> tokens;
  for (const double length : parse_slice_lengths(text)) {
    constexpr double kMaxTokens = 1e9;
    // `simulate` takes fractions as lengths; tokens are whole.
    if (length != std::floor(length) || length > kMaxTokens)
      reject("--slice-lengths {}: must be whole numbers of tokens up to 10^9", text);
    tokens.push_back(static_cast<std::int64_t>(length));
  }
  return tokens;
}

/// Parses a value by its type.
template <class Value>
void parse_option(const char* flag, const std::string& text, Value& value) {
  if constexpr (std::is_same_v<Value, std::int64_t>) value = parse_count(flag, text);
  if constexpr (std::is_same_v<Value, double>) value = parse_amount(flag, text);
  if constexpr (std::is_same_v<Value, bool>) value = name_for(flag, text, {"true", "false"}) == "true";
  if constexpr (std::is_same_v<Value, std::string>) value = text;
  if constexpr (std::is_same_v<Value, SaveInterval>) value = parse_save_interval(flag, text);
  if constexpr (std::is_same_v<Value, PartitionChoice>) value = parse_partition(text);
  if constexpr (std::is_same_v<Value, std::uint64_t>) value = parse_bytes(flag, text);
  if constexpr (std::is_same_v<Value, std::vector<std::int64_t>>) value = tokens_of_slices(text);
  if constexpr (std::is_same_v<Value, std::vector<std::string>>)
    value = mapped<std::string>(split_at_commas(text), std::identity());
  if constexpr (NamedEnum<Value>) value = parse_named<Value>(flag, name_for(flag, text, names_of<Value>()));
}
template <class Value>
void parse_option(const char* flag, const std::string& text, std::optional<Value>& value) {
  parse_option(flag, text, value.emplace());
}

template <class Value>
std::string type_of_option(const Value& /*value*/) {
  if constexpr (std::is_same_v<Value, std::int64_t>) return "N";
  if constexpr (std::is_same_v<Value, double>) return "X";
  if constexpr (std::is_same_v<Value, SaveInterval>) return "N|TIME";
  if constexpr (NamedEnum<Value>) return fmt::format("{}", fmt::join(names_of<Value>(), "|"));
  return "";
}
template <class Value>
std::string type_of_option(const std::optional<Value>& /*value*/) {
  return type_of_option(Value{});
}

class OptionDeclarations {
 public:
  explicit OptionDeclarations(TrainOptions& options) : o_(options) {}

  std::vector<Option> declare() {
    model();
    data();
    parallel();
    updates();
    numbers();
    running();
    checkpoints();
    output();
    return std::move(all_);
  }

 private:
  void group(const char* heading) { heading_ = heading; }
  /// Adds an option. In `help`, braces stand for the default.
  template <class Value>
  Option& add(const char* flag, Value& value, const OptionTraits& traits, const std::string& help) {
    return add(flag, value, type_of_option(value), traits, help);
  }
  template <class Value>
  Option& add(const char* flag, Value& value, const std::string& type, const OptionTraits& traits,
              const std::string& help) {
    // The reference is into the TrainOptions of declare_options(), which outlives the parser of the command line.
    const auto take = [flag, &value](const std::string& text) { parse_option(flag, text, value); };
    return add_parsed(flag, type, take, json_of(value), traits, help);
  }
  Option& add_parsed(const char* flag, std::string type, std::function<void(const std::string&)> take, Json value,
                     const OptionTraits& traits, const std::string& help) {
    Option& option = all_.emplace_back(Option{.heading = heading_,
                                              .flag = flag,
                                              .help = help,
                                              .type = std::move(type),
                                              .take = std::move(take),
                                              .value = std::move(value),
                                              .traits = traits});
    if (help.find("{}") != std::string::npos) option.help = fmt::format(fmt::runtime(help), option.text());
    return option;
  }
  /// Adds an option for a path, which must not be empty.
  Option& add_path(const char* flag, std::string& path, const char* type, const OptionTraits& traits,
                   const std::string& help) {
    const auto take = [flag, type, &path](const std::string& text) {
      if (text.empty()) reject("{}: the name of a {} is missing", flag, type == kFolder ? "folder" : "file");
      path = text;
    };
    return add_parsed(flag, type, take, path, traits, help);
  }
  Option& add_data(const char* flag, std::string& data, const OptionTraits& traits, const std::string& help) {
    Option& option = add(flag, data, "DATA", traits, help);
    option.data = &data;
    return option;
  }

  void model();
  void data();
  void parallel();
  void updates();
  void numbers();
  void running();
  void checkpoints();
  void output();

  TrainOptions& o_;
  const char* heading_ = "";
  std::vector<Option> all_;
};

void OptionDeclarations::model() {
  group("Model");
  add("--model", o_.model.name, "NAME", {}, "preset (see `chimera model --help`) or TOML file (default {})");
  add_path("--from", o_.model.from, kFolder, {}, "Hugging Face folder to start from: config.json and safetensors");
  add("--dropout", o_.model.dropout, {kRecorded}, "dropout probability (default {})");
}

void OptionDeclarations::data() {
  DataOptions& d = o_.data;
  group("Data");
  add_data("--data", d.training, {},
           "text; files of tokens (Megatron, llm.c or raw); a folder of such files; or a mixture such as 0.7:a 0.3:b");
  add_data("--validation", d.validation, {},
           "validation data, or the fraction at the end of --data to hold out (default 0.05, or the validation shards "
           "of a folder)");
  add_path("--tokenizer", d.tokenizer, kFile, {},
           "tokenizer.json, vocab.json, vocab.txt, a folder with one of them, or `bytes` (default: the tokenizer of "
           "--from; `bytes` without --from)");
  add("--documents", d.documents, {kEqual}, "whether attention crosses document boundaries (pack) or not (default {})");
  add("--end-of-document", d.end_of_document,
      {kEqual, d.end_of_document == kNoToken ? -1.0 : 0.0, std::numeric_limits<std::int32_t>::max()},
      "token id between documents: the last token in raw files, the first in llm.c files (default for llm.c: its own)");
  add("--sequence", d.sequence, {kEqual | kResolved, 1, kMany},
      "tokens per sequence (default {}, or all positions of the model if it has fewer)");
  add("--micro-batch-size", d.micro_batch_size, {kEqual | kResolved, 1, kMany},
      "sequences per micro-batch (b; default {})");
  add("--steps", o_.updates.steps, {kRecorded | kResolved, 1, kMany}, "number of optimizer steps (default {})");
  add("--validate-every", d.validate_every, {kEqual, 0, kMany}, "steps between validations; 0: none (default {})");
  add("--validate-batches", d.validate_batches, {kEqual, 1, kMany},
      "maximum number of mini-batches per validation (default {})")
      .needs("--validate-every", d.validate_every > 0);
  add("--sample-every", d.sample_every, {kEqual, 0, kMany},
      "steps between text samples: 64 tokens that GPT-2 or Llama generates greedily after --prompt; 0: none "
      "(default {})");
  add("--prompt", d.prompt, "TEXT", {kEqual}, "text that samples continue");
}

void OptionDeclarations::parallel() {
  ParallelOptions& p = o_.parallel;
  ScheduleOptions& s = o_.schedule;
  group("Schedule and shape");
  add("--schedule", s.name, "NAME", {},
      "name, JSON or CSV file, - (standard input), or none (default: the fastest by prediction that fits in memory)");
  add("--slice-lengths", s.slice_lengths, "balanced|equal|N,N", {},
      "tokens of the slices: balanced, which take equal times by attention's share of the model's FLOPs; equal; or "
      "a list (default balanced)");
  add("--partition", s.partition, "CUT", {},
      "how layers are distributed over stages: even; balanced, which shortens the step that FLOPs and bytes predict; "
      "auto: balanced where it is faster; or blocks per stage such as 8,9,9,6 (default {})");
  group("Parallelism");
  add("--data-parallel", p.data_parallel, {kResolved, 1, kMaxRanks}, "number of data-parallel groups (W; default {})");
  add("--tensor-parallel", p.tensor_parallel, {0, 1, kMaxRanks},
      "number of neighboring ranks that share the layers of a worker (T; default {})");
  add("--sequence-parallel", p.sequence_parallel, {},
      "divide the tokens of norms and dropout over the T ranks: auto, if T divides the sequence and its slices; or "
      "none (default {})");
  add("--replica-layout", p.replica_layout, {},
      "which ranks are neighbors: the replicas of a worker (near), or the workers of a pipeline (far) (default {})");
  add("--sync", s.sync, {},
      "when a worker launches the gradient all-reduce of a stage: after its last op (post), after the last backward "
      "of the stage (eager), or eagerly only before idle time (eager-opt) (default {})");
  add("--adapt", s.adapt, {kEqual},
      "what steps adapt to: documents of unequal length with --documents split, whose samples are dealt to "
      "micro-batches and places of even work; all, also slow ranks and links, with --recover twin or reroute; or "
      "none (default {})");
  add_parsed(
      "--overlap-pairs", "",
      [&s](const std::string& text) { s.pairs = text == "true" ? Pairs::Together : Pairs::InOrder; },
      s.pairs == Pairs::Together, {},
      "overlap the two ops of a pair, with a second thread per rank; for schedules with pairs and idle cores");
  add("--transport", o_.device.transport, {},
      "whether ranks are processes connected over loopback, or threads (default {})");
  add("--device", o_.device.kind, {kEqual},
      "device of the tensors; cuda: one GPU and NCCL per process, or the first GPU for all threads (default {})");
  add("--threads", o_.device.threads, {0, 0, kMaxThreads},
      "intra-op threads of a rank, instead of OMP_NUM_THREADS (default: cores / ranks of this host, at least 1; 1 with "
      "--reduction canonical)");
}

void OptionDeclarations::updates() {
  OptimizerOptions& optimizer = o_.updates.optimizer;
  MuonOptions& muon = optimizer.muon;
  LearningRate& rate = o_.updates.learning_rate;
  const bool is_muon = optimizer.kind == OptimizerKind::Muon;
  constexpr const char* kMuon = "--optimizer muon";
  group("Optimization");
  add("--optimizer", optimizer.kind, {kEqual | kResolved}, "optimizer of the master weights (default {})");
  add("--beta1", optimizer.beta1, {kRecorded}, "decay rate of the mean gradient (default {})");
  add("--beta2", optimizer.beta2, {kRecorded}, "decay rate of the mean squared gradient (default {})");
  add("--epsilon", optimizer.epsilon, {kRecorded}, "term added to the root of the mean squared gradient (default {})");
  add("--momentum", muon.momentum, {is_muon ? kRecorded : 0}, "momentum of muon (default {})").needs(kMuon, is_muon);
  add("--muon-adjust", muon.adjust, {is_muon ? kRecorded : 0},
      "learning rate of muon's matrices: as large updates as adamw, or the original rule (default {})")
      .needs(kMuon, is_muon);
  add("--muon-dtype", muon.iterations, {is_muon ? kRecorded : 0},
      "type in which muon orthogonalizes matrices (default: that of the layers, --dtype)")
      .needs(kMuon, is_muon)
      .value = json_of(muon.iterations.value_or(o_.numbers.dtype));
  add("--muon-exclude", muon.exclude, kWords, {is_muon ? kRecorded : 0},
      "matrices of blocks that adamw updates: parts of their names, such as mlp,v_proj")
      .needs(kMuon, is_muon);
  add("--weight-decay", optimizer.weight_decay, {kRecorded | kResolved}, "decoupled weight decay (default {})");
  add("--decay", optimizer.decayed, {kRecorded},
      "weights that decay: matrices (no biases and norms), matrices without embeddings, or all (default {})");
  add("--learning-rate", rate.peak, {kRecorded | kResolved},
      "peak learning rate, after the warm-up (default {}, or 5e-5 with --from)");
  add("--warmup", rate.warmup, {kRecorded | kResolved, 0, kMany},
      "steps of linear warm-up, of which the last has the peak (default 5 % of the steps, 4 to 2000)");
  add("--learning-rate-shape", rate.shape, {kRecorded},
      "decay of the learning rate: cosine, linear, wsd (only in the last steps), or constant (default {})");
  add("--min-learning-rate", rate.minimum, {kRecorded}, "learning rate of the last step (default a tenth of the peak)");
  add("--cooldown", rate.cooldown, {kRecorded, 0, kMany},
      "number of last steps in which wsd decays (default a tenth of all steps, at least 1)");
  add("--cooldown-shape", rate.cooldown_shape, {kRecorded}, "shape of the wsd decay (default {})")
      .needs("--learning-rate-shape wsd", rate.shape == LearningRateShape::Wsd);
  add("--clip", o_.updates.clip, {kRecorded | kResolved},
      "maximum gradient norm: global, or per stage in asynchronous schedules; 0: none (default {})");
}

void OptionDeclarations::numbers() {
  NumericOptions& n = o_.numbers;
  group("Precision and determinism");
  add("--dtype", n.dtype, {kRecorded | kResolved},
      "type of computation; bfloat16: mixed precision with float32 master weights and gradients (default {})");
  add("--force-bfloat16", n.force_bfloat16, {},
      "use bfloat16 on CPUs without AVX512-BF16 and AMX, or on GPUs without it, which is very slow")
      .needs("--dtype bfloat16", n.dtype == DataType::BFloat16);
  add("--tf32", n.tf32, {kEqual}, "multiply float32 matrices as TensorFloat32 on a GPU: faster, with 10-bit mantissas");
  add("--cuda-graphs", n.cuda_graphs, {kEqual},
      "record the work of the third step as a CUDA graph and replay it: faster for small layers, needs more memory");
  add("--op-graphs", n.op_graphs, {kEqual},
      "record each op of a stage as a CUDA graph before the first step, and replay it (never run on a GPU)");
  add("--seed", o_.data.seed, {kEqual | kResolved, 0, kAnyInteger},
      "seed of initial weights, data order and dropout masks (default {})");
  add("--reduction", n.reduction, {kRecorded},
      "order of gradient sums: natural (as in the schedule), or canonical (bitwise equal for every schedule, D, 2f and "
      "W) (default {})");
  add("--reduction-blocks", n.reduction_blocks, {kEqual, 0, kMany},
      "number of micro-batch blocks that a binary tree adds (Q), for --reduction canonical (default: the largest power "
      "of two that divides N W, at most 64)");
}

void OptionDeclarations::running() {
  RecoveryOptions& r = o_.recovery;
  group("Memory");
  add("--memory", o_.memory.gib, {},
      "memory of a worker in GiB: a run that needs more is refused; for --recompute auto, --offload auto and --plan "
      "auto, and for copies of lost stages with --recover");
  add("--no-memory-check", o_.memory.ignores, {}, "start a run that is predicted not to fit in memory");
  add("--shard-optimizer", o_.memory.shard_optimizer, {kEqual},
      "shard optimizer state over the replicas of a stage (ZeRO-1)");
  group("Running");
  add("--hang-seconds", r.hang_seconds, {0, 0, kWeek},
      "seconds without progress, beyond the longest pause so far, until the job ends and the hanging rank is reported; "
      "time in computation or disk I/O counts 1/20; 0: never (default {}; 120 in the first step, except for stopped "
      "ranks)");
  add("--verify-messages", r.verify_messages, {kEqual}, "send an XXH3 checksum with every tensor and verify it");
  add("--rendezvous-seconds", r.rendezvous_seconds, {0, 1, kWeek},
      "maximum time in seconds until all ranks of torchrun, srun or mpirun have connected (default {})");
}

void OptionDeclarations::checkpoints() {
  RecoveryOptions& r = o_.recovery;
  CheckpointOptions& c = o_.checkpoint;
  const bool saves = !c.folder.empty();
  const unsigned kept = kEqual | (saves ? kSettled : 0);
  group("Checkpoints");
  add_path("--checkpoint", c.folder, kFolder, {kEqual},
           "save weights, optimizer state and data position here: after every 10 minutes of training, or as "
           "--save-every says, and at the end");
  add("--keep", c.keep.last, {kept, 1, kMany},
      "number of newest checkpoints to keep (default {}, or as in the resumed run)")
      .needs("--checkpoint", saves);
  add("--keep-every", c.keep.every, {kept, 0, kMany},
      "also keep the first checkpoint at or after each multiple of this number of steps; 0: none (default {}, or as in "
      "the resumed run)")
      .needs("--checkpoint", saves);
  add("--save-every", c.every, {kEqual}, "steps between checkpoints, or a time such as 30s, 10min, 2h (default 10min)")
      .needs("--checkpoint", saves);
  add("--max-restarts", r.max_restarts, {0, 0, kMany},
      "how often the job is restarted from its newest valid checkpoint after a failure or hang (default {}, or 3 with "
      "--recover restart)")
      .needs("--checkpoint", saves);
  add("--recover", r.recover, {},
      "what to do if a rank dies: restart, as often as --max-restarts allows (3 if not given); twin, replace the rank "
      "with the state of its replicas, without losing a step; reroute, go on without it, the replicas do its work; or "
      "none, end the run (default {})");
  add("--max-recoveries", r.max_recoveries, {0, 1, kMany},
      "how often ranks are lost in one attempt of the run until --recover twin or reroute ends it (default {})")
      .needs("--recover twin or reroute", r.outlives_ranks());
  add("--spare-seconds", r.spare_seconds, {0, 0, 1e6},
      "how long --recover twin waits for a replacement before it goes on as reroute does; a late one returns "
      "(default {})")
      .needs("--recover twin", r.recover == Recover::Twin);
  add("--non-finite", r.non_finite, {},
      "what to do if the loss or a gradient is not finite: abort the run; skip the update; or rollback to the newest "
      "checkpoint, as --max-restarts allows, and skip the step if it fails again (default {})");
  add_parsed(
      "--spike", "N[sigma]", [&r](const std::string& text) { r.spike = parse_deviations("--spike", text); }, r.spike,
      {kEqual},
      "roll back to the newest checkpoint, as --max-restarts allows, if a loss is this many deviations above the "
      "expected loss, and skip the updates before it (default: never)");
  add("--spike-skip", r.spike_skip, {kEqual, 1, kMany},
      "number of mini-batches up to a spike whose updates are skipped (default {})")
      .needs("--spike", r.spike > 0);
  add("--on-different-copies", r.different_copies, {kEqual},
      "what to do if the replicas of a stage differ, for example after a bit flip: abort the run; or repair, compare "
      "after every step and overwrite a differing minority (default {})");
  add_path("--resume", o_.resume.from, kFolder, {kSettled},
           "continue a run: a checkpoint; a folder of checkpoints (the newest valid one); auto: from the folder of "
           "--checkpoint, if it has any; or none");
  add("--resume-other-data", o_.resume.other_data, {},
      "continue even if data, mini-batch, sequence length or seed differ from the saved run")
      .needs("--resume", !o_.resume.from.empty());
  group("");
  add(kFailedStepFlag, r.failed_step, {}, "set by restarts");
  add(kSampleShiftFlag, o_.resume.sample_shift, {kEqual | kSettled}, "set by --resume");
  add(kTokenShiftFlag, o_.resume.token_shift, {kEqual | kSettled}, "set by --resume");
  add(kPlannedStepFlag, o_.planned.step_seconds, {}, "in the files of `chimera plan`");
}

void OptionDeclarations::output() {
  OutputOptions& out = o_.output;
  FinalExportOptions& exported = o_.exported;
  const bool exports = !exported.folder.empty();
  group("Output");
  add_path("--metrics", out.metrics, kFile, {},
           "write one JSON object per step to this file (default: metrics.jsonl in the folder of --checkpoint)");
  add("--log-every", out.log_every, {},
      "steps between progress lines in a log, or a time such as 30s (default: about 20 lines, and at least one every "
      "10 s)");
  add_path("--tensorboard", out.tensorboard, kFolder, {},
           "write the metrics to an event file for TensorBoard in this folder");
  add_path("--trace", out.trace, kFile, {},
           "write the ops of the last steps (at most 8) on all ranks as a trace for ui.perfetto.dev");
  add_path("--timeline", out.timeline, kFile, {},
           "write an HTML page with the step of median duration, measured and simulated");
  add_path("--report", out.report, kFile, {}, "write an HTML report at the end: loss, speed, memory, predictions");
  add_path("--op-times", out.op_times, kFile, {},
           "write the mean time of every op in seconds, for `chimera simulate --costs`");
  add_path("--tensor-memory", out.tensor_memory, kFile, {},
           "write the peak tensor bytes of each rank to this JSON file");
  add_path("--flight-record", out.flight_record, kFolder, {},
           "folder for the last 20,000 instructions of each rank, for `chimera diagnose`, or none (default: flight in "
           "the folder of --checkpoint)");
  add("--overwrite", out.overwrite, {}, "replace output files of other runs");
  add_path("--export", exported.folder, kFolder, {kEqual},
           "write the trained model to this new folder when the run ends, for transformers");
  const auto take_type = [&exported](const std::string& text) {
    exported.dtype = name_for("--export-dtype", text, element_type_names());
    (void)element_type_of_word("--export-dtype", exported.dtype);
  };
  add_parsed("--export-dtype", fmt::format("{}", fmt::join(element_type_names(), "|")), take_type, exported.dtype,
             {kEqual}, "type of the exported tensors (default: the type of the weights, float32 or float64)")
      .needs("--export", exports);
  add("--export-shard-size", exported.shard_bytes, "SIZE", {kEqual},
      "maximum bytes of tensors per file, such as 300MB (default 5GB)")
      .needs("--export", exports);
}

}  // namespace

std::string Option::text() const {
  if (value.is_string()) return value.get<std::string>();
  std::string text = value.is_number_float() ? fmt::format("{}", value.get<double>()) : json_text(value);
  if (const std::size_t at = text.find("e-0"); at != std::string::npos) text.erase(at + 2, 1);  // 1e-8, not 1e-08
  return text;
}

void Option::require_in_range() const {
  const auto& [marks, least, most] = traits;
  if (most == 0 || !value.is_number()) return;
  const auto number = value.get<double>();
  if (number >= least && number <= most) return;
  if (value.is_number_float()) reject("{} must be {:g} to {:g}, not {:g}", flag, least, most, number);
  const std::int64_t largest = most < kAnyInteger ? static_cast<std::int64_t>(most) : kLargest;
  reject("{} must be {:.0f} to {}, not {}", flag, least, largest, value.get<std::int64_t>());
}

std::string Option::key() const {
  std::string name = flag + 2;
  std::ranges::replace(name, '-', '_');
  return name;
}

std::vector<Option> declare_options(TrainOptions& options) { return OptionDeclarations(options).declare(); }

std::vector<Option> declared_values(TrainOptions options) {
  std::vector<Option> all = declare_options(options);
  for (Option& option : all) {
    // `options` is a parameter, which ends with this function.
    option.take = nullptr;
    option.data = nullptr;
  }
  return all;
}

}  // namespace chimera
