#include "train/setup/combinations.h"

#include <fmt/format.h>
#include <algorithm>

#include "core/mapped.h"
#include "schedule/schedule.h"
#include "train/setup/device.h"

// Which features a run cannot have together, as two tables. all_features() gives each feature a name and a test, and
// refused_combinations() lists sets of features with the message for a run that has all of a set. find_refusal() reads
// the tables for a job, and combinations_json() for the page of the documentation, so page and refusals cannot differ.

namespace chimera {
namespace {

/// A property of a job.
// clang-format off
enum class Feature : std::uint8_t {
  // Main features, which the page compares with each other
  TensorParallel, Slices, Asynchronous, Pairs, Muon, Lamb, ShardOptimizer, Canonical, Restarts, Twin, Reroute,
  Repair, AdaptAll, Offload, Dropout, SplitDocuments, Threads, Cuda, CudaGraphs, OpGraphs, Observes,
  // Others: facts that rows need, or sums of main features, as Graphs is of CudaGraphs and OpGraphs
  Outlives, NoRecovery, NoRestarts, Rollback, Spike, NonFinite, Checkpoint, NoCheckpoint, TimedSaves, Graphs, Cpu,
  VerifyMessages, Tf32, BFloat16, TensorMemory, Sync, WholeSequences, Tied, OneProcess, ThreadRanks, Launched,
  NoSpares, NoCopies, LonelyStage, TwoCopies, Replicas, Unpaired, SharedUpdates,
};
// clang-format on

struct NamedFeature {
  Feature feature;
  const char* name;
  bool (*holds)(const Job&);
  std::vector<Feature> implied = {};
};

bool recovers(const Job& j, Recover recover) { return j.options.recovery.recover == recover; }
bool updates_by(const Job& j, OptimizerKind kind) { return j.options.updates.optimizer.kind == kind; }
bool has_threads(const Job& j) { return j.options.device.transport == TransportKind::Threads; }
/// Returns the number of copies of each stage, over all data-parallel groups.
std::vector<std::size_t> copy_counts(const Job& j) {
  return mapped(j.run.rank_groups(), [](const auto& group) { return group.size(); });
}

const auto& all_features() {
  using enum Feature;
  static const std::vector<NamedFeature> kFeatures = {
      {TensorParallel, "`--tensor-parallel` above 1",
       [](const Job& j) { return j.options.parallel.tensor_parallel > 1; }},
      {Slices, "`--slices` above 1", [](const Job& j) { return j.run.schedule.slices > 1; }},
      {Asynchronous, "asynchronous schedules", [](const Job& j) { return bool(j.run.schedule.updates); }},
      {Pairs, "`--overlap-pairs`", [](const Job& j) { return j.options.schedule.pairs == chimera::Pairs::Together; }},
      // The last list names features that this one implies. The page counts their combinations as its own.
      {Muon, "`--optimizer muon`", [](const Job& j) { return updates_by(j, OptimizerKind::Muon); }, {SharedUpdates}},
      {Lamb, "`--optimizer lamb`", [](const Job& j) { return updates_by(j, OptimizerKind::Lamb); }, {SharedUpdates}},
      {ShardOptimizer, "`--shard-optimizer`", [](const Job& j) { return j.options.memory.shard_optimizer; }},
      {Canonical, "`--reduction canonical`",
       [](const Job& j) { return j.options.numbers.reduction == ReductionOrder::Canonical; }},
      {Restarts, "`--max-restarts`", [](const Job& j) { return j.options.recovery.max_restarts > 0; }},
      {Twin, "`--recover twin`", [](const Job& j) { return recovers(j, Recover::Twin); }, {Outlives}},
      {Reroute, "`--recover reroute`", [](const Job& j) { return recovers(j, Recover::Reroute); }, {Outlives}},
      {Repair, "`--on-different-copies repair`",
       [](const Job& j) { return j.options.recovery.different_copies == DifferentCopies::Repair; }},
      {AdaptAll, "`--adapt all`", [](const Job& j) { return j.options.schedule.adapt == Adapt::All; }, {Outlives}},
      {Offload, "`--offload`", [](const Job& j) { return j.options.memory.offload.rule != StageRule::None; }},
      {Dropout, "`--dropout`", [](const Job& j) { return j.options.model.dropout > 0; }},
      {SplitDocuments, "`--documents split`",
       [](const Job& j) { return j.options.data.documents == Documents::Split; }},
      {Threads, "`--transport threads`", has_threads, {OneProcess, ThreadRanks}},
      {Cuda, "`--device cuda`", [](const Job& j) { return uses_gpu(j.options); }},
      {CudaGraphs, "`--cuda-graphs`", [](const Job& j) { return j.options.numbers.cuda_graphs; }, {Graphs, Cuda}},
      {OpGraphs, "`--op-graphs`", [](const Job& j) { return j.options.numbers.op_graphs; }, {Graphs, Cuda}},
      {Observes, "`--trace`, `--op-times`, `--timeline`, `--report`",
       [](const Job& j) { return j.options.output.observes(); }},
      {Outlives, "`--recover twin` or `reroute`", [](const Job& j) { return j.options.recovery.outlives_ranks(); }},
      {NoSpares, "no `--recover twin` or `reroute`", [](const Job& j) { return !j.options.recovery.outlives_ranks(); }},
      {NoRecovery, "`--recover none`", [](const Job& j) { return recovers(j, Recover::None); }},
      {NoRestarts, "no `--max-restarts`", [](const Job& j) { return j.options.recovery.max_restarts == 0; }},
      {Rollback, "`--non-finite rollback`",
       [](const Job& j) { return j.options.recovery.non_finite == chimera::NonFinite::Rollback; }},
      {Spike, "`--spike`", [](const Job& j) { return j.options.recovery.spike > 0; }},
      {Feature::NonFinite, "`--non-finite skip` or `rollback`",
       [](const Job& j) { return j.options.recovery.non_finite != chimera::NonFinite::Abort; }},
      {Feature::Checkpoint, "`--checkpoint`", [](const Job& j) { return !j.options.checkpoint.folder.empty(); }},
      {NoCheckpoint, "no `--checkpoint`", [](const Job& j) { return j.options.checkpoint.folder.empty(); }},
      {TimedSaves, "`--save-every` in seconds", [](const Job& j) { return j.options.checkpoint.every.steps == 0; }},
      {Graphs,
       "`--cuda-graphs` or `--op-graphs`",
       [](const Job& j) { return j.options.numbers.cuda_graphs || j.options.numbers.op_graphs; },
       {Cuda}},
      {Cpu, "`--device cpu`", [](const Job& j) { return !uses_gpu(j.options); }},
      {Feature::VerifyMessages, "`--verify-messages`", [](const Job& j) { return j.options.recovery.verify_messages; }},
      {Tf32, "`--tf32`", [](const Job& j) { return j.options.numbers.tf32; }},
      {BFloat16, "`--dtype bfloat16`", [](const Job& j) { return j.options.numbers.dtype == DataType::BFloat16; }},
      {TensorMemory, "`--tensor-memory`", [](const Job& j) { return !j.options.output.tensor_memory.empty(); }},
      {Sync, "`--sync`", [](const Job& j) { return j.options.schedule.sync != AllReducePlacement::EagerOpt; }},
      {WholeSequences, "BERT", [](const Job& j) { return !is_causal(j.model.family); }},
      {Tied, "a model with a tied matrix", [](const Job& j) { return j.model.tied; }},
      {OneProcess, "a run of one process",
       [](const Job& j) { return (j.num_ranks() == 1 && !j.options.device.is_supervised) || has_threads(j); }},
      {ThreadRanks, "several ranks as threads", [](const Job& j) { return j.num_ranks() > 1 && has_threads(j); }},
      {Launched, "torchrun, srun or mpirun", [](const Job& j) { return !j.options.device.launcher.empty(); }},
      {NoCopies, "no stage with a second copy", [](const Job& j) { return std::ranges::max(copy_counts(j)) < 2; }},
      {LonelyStage, "a stage without a second copy", [](const Job& j) { return std::ranges::min(copy_counts(j)) < 2; }},
      {TwoCopies, "a stage with two copies", [](const Job& j) { return std::ranges::min(copy_counts(j)) == 2; }},
      {Replicas, "several replicas in a pipeline",
       [](const Job& j) {
         return std::ranges::any_of(j.run.worker_groups(), [](const auto& some) { return some.size() > 1; });
       }},
      {Unpaired, "a schedule without pairs", [](const Job& j) { return !has_pairs(j.run.schedule); }},
      {SharedUpdates, "LAMB or Muon",
       [](const Job& j) { return updates_by(j, OptimizerKind::Lamb) || updates_by(j, OptimizerKind::Muon); }},
  };
  return kFeatures;
}

/// Features that a run does not have together.
struct Combination {
  std::vector<Feature> features;
  // With placeholders in braces (message_for()). What to do instead follows the last semicolon; without any: leave out
  // one
  const char* message;
};

const auto& refused_combinations() {
  using enum Feature;
  static const std::vector<Combination> kCombinations = {
      {{Restarts, NoCheckpoint}, "--recover restart continues from a checkpoint; give --checkpoint too"},
      {{Rollback, NoRestarts}, "--non-finite rollback starts the run again, as --max-restarts allows; give that too"},
      {{Spike, NoRestarts},
       "--spike starts the run again from its newest checkpoint, as --max-restarts allows; give --checkpoint and that "
       "too"},
      {{Restarts, Threads}, "--max-restarts starts processes again; leave out --transport threads"},
      {{Restarts, NoRecovery}, "--recover none leaves nothing to --max-restarts; leave out one of them"},
      {{Feature::VerifyMessages, Cuda}, "--verify-messages: is for tensors on CPUs; use --device cpu, or leave it out"},
      {{Tf32, Cpu}, "--tf32: TensorFloat32 is a type of GPUs; leave it out, or use --device cuda"},
      {{Slices, WholeSequences},
       "{slices}: each token of model {model} attends to all others, so only whole sequences can run; leave it out"},
      {{Slices, Graphs}, "{slices}: --cuda-graphs and --op-graphs record whole micro-batches; leave out one of them"},
      {{Slices, Pairs}, "{slices}: a schedule with slices has no pairs; leave out --overlap-pairs"},
      {{Slices, Asynchronous}, "{slices}: schedule {schedule} is asynchronous, and runs whole micro-batches"},
      {{Asynchronous, Pairs}, "--overlap-pairs: schedule {schedule} is asynchronous, and has no pairs"},
      {{Asynchronous, Canonical},
       "--reduction canonical: schedule {schedule} is asynchronous, its updates depend on its order of ops"},
      {{Asynchronous, Sync},
       "--sync: schedule {schedule} is asynchronous, it sums gradients at its updates; leave the flag out"},
      {{Asynchronous, Feature::NonFinite},
       "--non-finite: schedule {schedule} is asynchronous, and updates weights before it finds such a value; leave the "
       "flag out"},
      {{Asynchronous, Spike},
       "--spike: schedule {schedule} is asynchronous, and updates weights before the loss of a step is complete; leave "
       "the flag out"},
      {{Asynchronous, ShardOptimizer},
       "--shard-optimizer: schedule {schedule} is asynchronous, and each worker makes its updates alone"},
      {{Asynchronous, Cuda},
       "--device cuda: schedule {schedule} is asynchronous, and such schedules run on CPUs alone; use --device cpu"},
      {{Asynchronous, BFloat16},
       "--dtype bfloat16: schedule {schedule} is asynchronous, and its versions are float32 or float64"},
      {{Asynchronous, Observes},
       "--trace, --op-times and --timeline: schedule {schedule} is asynchronous, and its steps overlap; leave them "
       "out"},
      {{Asynchronous, Tied},
       "--tied true: schedule {schedule} is asynchronous, and would update the two copies of the tied matrix "
       "separately; use --tied false"},
      {{Asynchronous, Feature::Checkpoint, TimedSaves},
       "--checkpoint: schedule {schedule} is asynchronous, and can be saved only at a flush; give --save-every in "
       "steps"},
      {{Asynchronous, Feature::Checkpoint, Replicas},
       "--checkpoint: schedule {schedule} is asynchronous, and its copies of a stage are not equal, so it has no "
       "single model to save"},
      {{Pairs, Cuda}, "--overlap-pairs: pairs run side by side on CPUs alone; use --device cpu"},
      {{Pairs, Unpaired},
       "--overlap-pairs: schedule {schedule} has no pairs; `chimera schedule NAME --pairs neighbors --format json` "
       "writes it with pairs for --schedule"},
      {{TensorParallel, Cuda, Threads},
       "--tensor-parallel {T}: --device cuda with --transport threads is not supported yet; use --transport processes"},
      {{TensorParallel, Graphs},
       "--tensor-parallel {T}: --cuda-graphs or --op-graphs is not supported yet; leave it out"},
      {{TensorParallel, Pairs}, "--tensor-parallel {T}: --overlap-pairs is not supported yet; leave it out"},
      {{TensorParallel, Reroute}, "--tensor-parallel {T}: --recover reroute is not supported yet; use --recover twin"},
      {{Repair, Asynchronous},
       "--on-different-copies repair: schedule {schedule} is asynchronous, and its stages are at different updates at "
       "any time"},
      {{Repair, ShardOptimizer},
       "--on-different-copies repair: --shard-optimizer keeps one copy of the optimizer state, which cannot be "
       "repaired; leave out one of them"},
      {{Repair, Cuda}, "--on-different-copies repair: needs ranks on CPUs; leave it out"},
      {{Repair, NoCopies},
       "--on-different-copies repair: no stage has a second copy; use a bidirectional schedule such as chimera, or "
       "--data-parallel 2"},
      {{AdaptAll, Asynchronous},
       "--adapt all: schedule {schedule} is asynchronous, and its copies of a stage are not equal; use --adapt none"},
      {{AdaptAll, TensorParallel}, "--adapt all: --tensor-parallel {T} is not supported yet; leave out one of them"},
      {{AdaptAll, Cuda},
       "--adapt all: needs the times of ops, which are measured on CPUs alone; use --adapt documents"},
      {{AdaptAll, Pairs}, "--adapt all: the changed order has no pairs; leave out --overlap-pairs"},
      {{AdaptAll, NoSpares}, "--adapt all: changes the order as --recover twin and reroute do; give one of them"},
      {{OpGraphs, CudaGraphs}, "--op-graphs: --cuda-graphs records the ops too; leave out one of them"},
      {{OpGraphs, Canonical},
       "--op-graphs: gradients of blocks have addresses of their own; use --reduction natural, or leave it out"},
      {{Graphs, Cpu}, "{graphs}: only GPUs have CUDA graphs; leave it out, or use --device cuda"},
      {{Graphs, Offload}, "{graphs}: a graph keeps its memory; use --offload none"},
      {{CudaGraphs, Dropout}, "{graphs}: a graph repeats its dropout masks; use --dropout 0, or leave it out"},
      {{Graphs, ThreadRanks},
       "{graphs}: a graph belongs to one rank, but threads share tensors; use --transport processes, or leave it out"},
      {{CudaGraphs, Observes},
       "--trace, --op-times, --timeline and --report: --cuda-graphs launches a step as a whole; use --op-graphs, or "
       "leave it out"},
      {{SplitDocuments, WholeSequences}, "--documents split: samples of model {model} are pairs of texts; use pack"},
      {{TensorMemory, Cuda}, "--tensor-memory counts tensors on the CPU; leave it out with --device cuda"},
      {{Launched, Restarts}, "--max-restarts: {launcher} has started the ranks, and would have to start them again"},
      {{Launched, Outlives},
       "--recover {recover}: {launcher} has started the ranks and ends them all if one is lost; start the run with "
       "`chimera train`, or with `chimera launch -- train --recover` on several hosts"},
      {{Restarts, OneProcess}, "--max-restarts needs a run of several processes; this run has one"},
      {{Outlives, OneProcess}, "--recover {recover}: needs a run of several processes; this run has one"},
      {{Outlives, CudaGraphs},
       "--recover {recover}: --cuda-graphs keeps the connections of lost ranks; use --op-graphs, or leave it out"},
      {{Outlives, Asynchronous},
       "--recover {recover}: schedule {schedule} is asynchronous, and its copies of a stage are not equal; use "
       "--recover restart"},
      {{Outlives, ShardOptimizer, TensorParallel},
       "--recover {recover}: --shard-optimizer is not supported with --tensor-parallel; leave out one of them"},
      {{Outlives, TensorParallel, SharedUpdates},
       "--recover {recover}: --optimizer {optimizer} exchanges over the --tensor-parallel ranks in its update; use "
       "adamw, or --recover restart"},
      {{Outlives, LonelyStage},
       "--recover {recover}: no other rank has a copy of the stages of rank {rank}; use a bidirectional schedule such "
       "as chimera, or --data-parallel 2"},
      {{Outlives, ShardOptimizer, TwoCopies},
       "--recover {recover}: --shard-optimizer would save nothing, because two ranks must keep each part of the "
       "optimizer state, and a stage has two copies; leave it out, or use more --pipelines or --data-parallel groups"},
  };
  return kCombinations;
}

const NamedFeature& described(Feature feature) {
  return *std::ranges::find(all_features(), feature, &NamedFeature::feature);
}

/// Returns the first rank whose stages no other rank has.
RankId lonely_rank(const JobShape& job) {
  const RankGroups groups = job.run.rank_groups();
  const auto lonely = std::ranges::find_if(groups, [](const auto& group) { return group.size() == 1; });
  return lonely == groups.end() ? RankId(0) : job.ranks().rank(lonely->front(), 0);
}

/// Returns the message for this job.
std::string message_for(const char* text, const Job& job) {
  const TrainOptions& o = job.options;
  const std::string source = o.schedule.given == nullptr ? "--slices" : o.schedule.file + ": slices";
  return fmt::format(fmt::runtime(text), fmt::arg("schedule", job.run.schedule.name), fmt::arg("model", job.model.name),
                     fmt::arg("slices", fmt::format("{} {}", source, job.run.schedule.slices)),
                     fmt::arg("T", o.parallel.tensor_parallel), fmt::arg("recover", to_text(o.recovery.recover)),
                     fmt::arg("optimizer", to_text(o.updates.optimizer.kind)),
                     fmt::arg("graphs", o.numbers.op_graphs ? "--op-graphs" : "--cuda-graphs"),
                     fmt::arg("launcher", o.device.launcher), fmt::arg("rank", lonely_rank(job).value()));
}

/// Returns the message for any job.
std::string message_for_any(const char* text) {
  return fmt::format(fmt::runtime(text), fmt::arg("schedule", "NAME"), fmt::arg("model", "NAME"),
                     fmt::arg("slices", "--slices K"), fmt::arg("T", "T"), fmt::arg("recover", "twin"),
                     fmt::arg("optimizer", "muon"), fmt::arg("graphs", "--cuda-graphs"),
                     fmt::arg("launcher", "torchrun"), fmt::arg("rank", "R"));
}

}  // namespace

std::string find_refusal(const Job& job) {
  const auto is_held = [&](Feature feature) { return described(feature).holds(job); };
  // In the order of the table, so a run with two problems always gets the same message first.
  for (const auto& [combined, message] : refused_combinations())
    if (std::ranges::all_of(combined, is_held)) return message_for(message, job);
  return "";
}

nlohmann::ordered_json combinations_json() {
  using Json = nlohmann::ordered_json;
  const auto names = [](const std::vector<Feature>& some) {
    return mapped(some, [](Feature each) { return described(each).name; });
  };
  const auto all = mapped(all_features(), [&](const NamedFeature& each) {
    return Json{{"name", each.name}, {"main", each.feature <= Feature::Observes}, {"implies", names(each.implied)}};
  });
  const auto refused = mapped(refused_combinations(), [&](const Combination& each) {
    const std::string message = message_for_any(each.message);
    const std::size_t end = message.rfind("; ");
    return Json{{"features", names(each.features)},
                {"why", message.substr(0, end)},
                {"instead", end == std::string::npos ? "leave out one of them" : message.substr(end + 2)}};
  });
  return {{"features", all}, {"refused", refused}};
}

}  // namespace chimera
