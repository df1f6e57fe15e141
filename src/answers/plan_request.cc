// A request becomes a problem (ProblemRequest::problem()) and options of the planner (answer()). What is not given gets
// its default here, because many defaults depend on the model or the machine. notes_of() and assumptions_of() tell the
// user which values these are.

#include "answers/plan_request.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "core/complete_name.h"
#include "core/counted.h"
#include "core/limits.h"
#include "core/reject.h"
#include "generate/registry.h"
#include "model_config/parameters.h"
#include "plan/layer_times.h"

namespace chimera {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;

// Above this size, the defaults are those of real training: bfloat16, and sequences as long as the model allows.
bool is_large(const ModelConfig& config) { return parameter_count(config) > 1'000'000'000; }

PartitionChoice partition_of(const PlanRequest& request) {
  return request.partition.value_or(PartitionChoice{PartitionRule::Balanced});
}

/// The paper's rule covers only its own schedule with even partitions.
void require_papers_choice(const PlanRequest& request) {
  for (const std::string& name : request.options.schedules) {
    if (find_generator(name).name == kPaperSchedule) continue;
    reject("--rule paper is for {} alone, not {}; leave out --schedules, or --rule", kPaperSchedule, name);
  }
  const std::vector<std::int64_t> one = {1};
  const auto require = [](bool holds, const char* lack, const char* flag) {
    if (!holds) reject("--rule paper {}; leave out {}, or --rule", lack, flag);
  };
  require(request.tensor_parallel.value_or(one) == one, "knows no tensor parallelism", "--tensor-parallel");
  require(request.options.given.slices == one, "knows no slices", "--slices");
  require(request.options.given.empty() && request.options.recompute.rule == StageRule::Auto,
          "decides --stages, --data-parallel, --micro-batch-size, --pipelines, --replica-layout and --recompute itself",
          "them");
  require(request.options.offload.rule == StageRule::None, "knows no offloading", "--offload");
  require(!request.questions.pareto, "takes all the memory there is", "--pareto");
  const bool is_even = !request.partition || request.partition->rule == PartitionRule::Even;
  require(is_even, fmt::format("cuts the model evenly, not as {}", to_text(*request.partition)).c_str(), "--partition");
}

/// Returns lines about the settings with which the plan was made, for the reader of the answer.
std::vector<std::string> notes_of(const PlanRequest& request, const PlanProblem& problem) {
  const PlanOptions& options = request.options;
  std::vector<std::string> notes = {fmt::format(
      "{}, {}{}{}; schedules: {}; partition {}, recompute {}, {}sync {}", to_text(request.dtype_for(problem.model)),
      to_text(request.optimizer), problem.shard_optimizer ? " (sharded)" : "", request.dropout ? ", dropout" : "",
      options.schedules.empty() ? "all synchronous" : fmt::format("{}", fmt::join(options.schedules, ", ")),
      to_text(partition_of(request)), to_text(options.recompute),
      options.offload.rule == StageRule::None ? "" : fmt::format("offload {}, ", to_text(options.offload)),
      to_text(request.sync))};
  // What the user did not choose is said below the title, because sequences and types change all figures.
  const std::vector<std::int64_t>& slices = options.given.slices;
  if (slices.empty()) notes.front() += ", slices auto";
  if (slices.size() > 1 || (!slices.empty() && slices.front() > 1))
    notes.front() += fmt::format(", slices {}", fmt::join(slices, ", "));
  std::vector<std::string> usual;
  if (!request.sequence) usual.push_back(fmt::format("--sequence {}", problem.workload.sequence));
  if (!request.dtype) usual.push_back(fmt::format("--dtype {}", to_text(request.dtype_for(problem.model))));
  if (!usual.empty()) notes.push_back(fmt::format("not given, so by default: {}", fmt::join(usual, ", ")));
  if (shares_cores(problem)) {
    notes.push_back(fmt::format("{} workers share {} of a node, so bubbles include waits for a core",
                                std::min(problem.workers, problem.machine.workers_per_node),
                                counted(problem.machine.cores, "core")));
  }
  if (problem.machine.reserved.all() > 0)
    notes.push_back("the memory of a worker includes " + to_text(problem.machine.reserved));
  return notes;
}

std::vector<std::string> assumptions_of(const PlanRequest& request, const PlanProblem& problem) {
  std::vector<std::string> assumed;
  for (const std::string& source : problem.machine.sources)
    if (source.starts_with("Assumed: ")) assumed.push_back("assumed: " + source.substr(9));
  if (request.options.offload.rule != StageRule::None && problem.machine.host_bandwidth == 0)
    assumed.push_back(fmt::format("assumed: {:g} GB/s between a device and host memory (host_bandwidth of the profile)",
                                  kHostBandwidth / 1e9));
  return assumed;
}

/// A number, a list or a range. With a default, `auto` is an empty list, which leaves the choice to the planner.
void visit_allowed(Door& door, const Field& field, std::vector<std::int64_t>& values) {
  // Without a default, the planner chooses anyway, and `auto` is no value of the field.
  const bool has_default = !values.empty();
  door.text(field, [&values, field, has_default](const std::string& text) {
    values =
        has_default && text == "auto" ? std::vector<std::int64_t>{} : value_of<std::vector<std::int64_t>>(field, text);
  });
}

Field allowed(const char* name, const char* meaning) { return {name, meaning, "N,N..N", 1, kMost}; }

}  // namespace

void ProblemRequest::visit(Door& door) {
  door.group("Model");
  door.text(
      {"model", "preset (see `chimera model --help`), TOML file or Hugging Face folder (default gpt2-mini)", "NAME"},
      [this](const std::string& name) { model = name; });
  door.object("overrides", [this](Door& overrides) { visit_overrides(overrides, fields); });
  door.field(
      {"dropout", "train with dropout, which keeps attention probabilities in memory", "", 0, 0, "--with-dropout"},
      dropout);
  door.group("Planning");
  door.field({"machine", "machine profile: a file of `chimera profile`, or a shipped one such as h100-80gb", "FILE"},
             machine);
  door.field({"kernels",
              "kernels of the job: eager, as those of `chimera train`, or fused ones of a compiler or vendor (default "
              "eager)"},
             kernels);
  door.field({"network", "rate between nodes, as 200Gb/s (adapter of a node) or 400Gb/s-per-gpu", "RATE"}, network);
  door.field({"workers", "total number of workers (P = W x T x D)", "N", 1, 1'000'000}, workers);
  door.field({"mini_batch", "sequences per step over all workers", "N", 1, kMost}, mini_batch);
  door.field({"memory", "memory of a worker in GiB (default: from the machine profile)"}, memory);
  door.field({"memory_bytes"}, memory_bytes);
  door.field({"sequence", "tokens per sequence (default 128; above 1 B parameters: all that the model can attend to)",
              "N", 1, kMost},
             sequence);
  door.group("Optimization");
  door.field({"dtype",
              "type of computation; bfloat16: mixed precision with float32 master weights (default float32; above 1 B "
              "parameters: bfloat16)"},
             dtype);
  door.field({"optimizer", "optimizer whose state takes memory (default adamw)"}, optimizer);
  door.field({"shard_optimizer", "shard optimizer state (ZeRO-1; default: if memory is short)"}, shard_optimizer);
  door.field({"sync", "when workers launch the gradient all-reduces (default eager-opt)"}, sync);
}

PlanProblem ProblemRequest::problem() const {
  if (workers == 0) reject("--workers is missing");
  if (mini_batch == 0) reject("--mini-batch is missing");
  require_between("--workers", workers, 1, 1'000'000);
  require_between("--mini-batch", mini_batch, 1, kMost);
  if (sequence) require_between("--sequence", *sequence, 1, kMost);
  PlanProblem problem;
  problem.layers = layers;
  // A user's own layers have measured times, so that a machine is needed only for messages.
  if (machine.empty() && layers.empty())
    reject("--machine is missing; `chimera profile` writes one, and h100-80gb is one of those shipped");
  if (layers.empty()) {
    problem.model = with_overrides(find(model), fields);
  } else {
    // The layers bring times and bytes of their own; the planner needs only their number.
    problem.model.name = "the model";
    problem.model.layers = static_cast<std::int64_t>(layers.size());
  }
  if (!machine.empty()) problem.machine = load_machine(machine);
  problem.workers = workers;
  problem.mini_batch = mini_batch;
  // People give GiB, programs give bytes.
  const double given = memory > 0 ? memory * kGiB : memory_bytes;
  problem.memory_bytes = given > 0 ? given : problem.machine.memory_bytes;
  if (problem.memory_bytes <= 0) reject("--memory is missing, and the machine's profile has none");
  if (layers.empty()) {
    problem.workload = workload_of(dtype_for(problem.model), optimizer, sequence_for(problem.model));
    problem.workload.dropout = dropout;
    // A profile without cores is one of GPUs.
    if (problem.machine.cores == 0) problem.workload.logits_of_chunk = kLogitsOfGpuChunk;
  }
  problem.sync = sync;
  // If it is not given, answer() allows the planner to shard (PlanOptions::may_shard).
  problem.shard_optimizer = shard_optimizer.value_or(false);
  problem.network = network;
  if (kernels && !problem.machine.has_device())
    reject("--kernels {}: machine profile '{}' has measured layers and no device model", to_text(*kernels),
           problem.machine.name);
  problem.machine.kernels = kernels.value_or(Kernels::Eager);
  if (!network.empty()) set_network(problem.machine, network);
  return problem;
}

std::int64_t ProblemRequest::sequence_for(const ModelConfig& config) const {
  constexpr std::int64_t kShort = 128;
  if (sequence) return *sequence;
  return is_large(config) ? std::min(config.positions, config.sliding_window.value_or(config.positions))
                          : std::min(kShort, config.positions);
}

DataType ProblemRequest::dtype_for(const ModelConfig& config) const {
  return dtype.value_or(is_large(config) ? DataType::BFloat16 : DataType::Float32);
}

void visit_stage_choices(Door& door, StageChoice& recompute, StageChoice& offload, const std::string& usual) {
  door.text({"recompute",
             "activation checkpointing: none, full, stages such as 0,1, or auto: as little as memory requires; cheap "
             "(norms, activation function) or attention of all blocks; blocks per stage: cheap:4+full:3,2 (default " +
                 usual + ")",
             "none|cheap|attention|full|auto|N,N|LEVEL:N,N"},
            [&recompute](const std::string& text) { recompute = parse_stages(kRecomputeFlag, text); });
  door.text({"offload",
             "keep activations in host memory between forward and backward: none, full, stages such as 0,1, first "
             "blocks of stages such as full:3,2, or auto: as few as memory requires (default none)",
             "none|full|auto|N,N|full:N,N"},
            [&offload](const std::string& text) { offload = parse_stages(kOffloadFlag, text); });
}

void PlanRequest::visit(Door& door) {
  ProblemRequest::visit(door);
  door.group("Planning");
  door.text({"schedules", "schedules to consider (default: all synchronous schedules)", "NAME,NAME"},
            [this](const std::string& names) {
              for (const std::string_view name : split_at_commas(names))
                options.schedules.push_back(complete_name(std::string(name), schedule_names()));
            });
  door.field(
      {"rule", "how to choose: by simulated step time, or by the rule of the Chimera paper (default simulation)"},
      rule);
  door.text({"partition",
             "how layers are distributed over stages: even; balanced, which tries even and balanced times; or blocks "
             "per stage such as 8,9,9,6 (default balanced)",
             "CUT"},
            [this](const std::string& text) { partition = parse_partition(text); });
  visit_allowed(door, allowed("stages", "number of workers of one pipeline (D; default: all possible numbers)"),
                options.given.stages);
  visit_allowed(door, allowed("data_parallel", "number of data-parallel groups (W)"), options.given.data_parallel);
  Field sizes = allowed("micro_batch_sizes", "sequences per micro-batch");
  sizes.flag = "--micro-batch-size";
  visit_allowed(door, sizes, options.given.micro_batch_sizes);
  visit_allowed(door, allowed("pipelines", "number of pipelines (2f); considers only schedules with several"),
                options.given.pipelines);
  visit_allowed(door, allowed("chunks", "stages of a pipeline per worker (v); considers only schedules with several"),
                options.given.chunks);
  door.field({"replica_layout",
              "which ranks share a node: replicas of a worker (near), or workers of a pipeline (far) (default: the "
              "faster layout)"},
             options.given.replica_layout);
  const Field tensor{
      "tensor_parallel",
      "workers that share each layer (T): numbers, or auto for all divisors of the heads (default: divisors of a "
      "host's GPUs, else 1)",
      "T", 1, 1'000'000};
  door.text(tensor, [this, tensor](const std::string& text) {
    // An empty list is `auto`. No list at all leaves the choice to usual_tensor_parallel().
    tensor_parallel.emplace();
    if (text != "auto") tensor_parallel = value_of<std::vector<std::int64_t>>(tensor, text);
  });
  visit_allowed(door,
                {"slices",
                 "slices of consecutive tokens per micro-batch (k): one number, several, or auto for 1, 2, "
                 "4, 8 and 16 with at least 128 tokens each; causal models (default 1)",
                 "K", 1, kMaxSlices},
                options.given.slices);
  visit_stage_choices(door, options.recompute, options.offload, "auto");
  door.field({"recompute_all"}, options.recompute_all);
  door.field({"top", "number of candidates to print; 0: all that fit (default 10)"}, options.top);
  door.field({"pareto", "list step time against memory: the fastest candidate for each memory limit"},
             questions.pareto);
}

std::vector<std::int64_t> usual_tensor_parallel(const PlanProblem& problem) {
  std::vector<std::int64_t> counts = {1};
  if (problem.machine.cores > 0 || !problem.layers.empty()) return counts;
  const std::int64_t devices = std::min(problem.machine.workers_per_node, problem.workers);
  for (std::int64_t count = 2; count <= devices; ++count)
    if (problem.machine.workers_per_node % count == 0) counts.push_back(count);
  return counts;
}

PlanAnalysis answer(const PlanRequest& request) {
  // Fields that the paper's rule would ignore are refused, else its answer would look like an answer to them.
  if (request.rule == PlanRule::Paper) require_papers_choice(request);
  PlanProblem problem = request.problem();
  PlanOptions options = request.options;
  options.partition = partition_of(request);
  options.may_shard = !request.shard_optimizer;
  if (request.tensor_parallel)
    options.given.tensor_parallel = *request.tensor_parallel;
  else if (request.rule == PlanRule::Simulation)
    options.given.tensor_parallel = usual_tensor_parallel(problem);
  PlanAnalysis report = analyze_plan(problem, options, request.rule, request.questions);
  report.notes = notes_of(request, report.problem);
  if (report.plan.ranked.front().candidate.shard_optimizer)
    report.notes.emplace_back("memory is short, so the optimizer is sharded, as with --shard-optimizer");
  report.assumptions = assumptions_of(request, report.problem);
  return report;
}

void set_network(MachineProfile& machine, const std::string& network) {
  constexpr double kShare = 0.9;
  const std::string rate = network.substr(0, network.find("Gb/s"));
  const std::string suffix = network.substr(rate.size());
  const double number = parse_number<double>(rate).value_or(0);
  const bool is_each = suffix == "Gb/s-per-gpu";
  if (!(number > 0 && number < 1e6) || !(is_each || suffix == "Gb/s"))
    reject("--network '{}': expected a rate such as 200Gb/s for a node or 400Gb/s-per-gpu", network);
  if (is_each && machine.cores > 0)
    reject("--network {}: the workers of '{}' are no GPUs; expected {}Gb/s", network, machine.name, rate);
  // Seconds per byte of a link with `number` 10^9 bits per second.
  machine.point_to_point.between_nodes.beta = machine.all_reduce.between_nodes.beta = 8e-9 / (kShare * number);
  // The burst in the profile is a property of the network that is replaced.
  machine.point_to_point.between_nodes.burst = 0;
  // 1: the transfers of a node divide the bandwidth of its adapter. GPUs with adapters of their own do not.
  machine.contention.node_transfers = is_each ? 0 : 1;
}

}  // namespace chimera
