#include "plan/enumerate.h"

#include <fmt/ranges.h>
#include <algorithm>
#include <set>

#include "core/reject.h"
#include "generate/registry.h"
#include "model_config/partition.h"
#include "model_config/tensor_cut.h"

namespace chimera {
namespace {

constexpr std::int64_t kMaxPlannedOps = std::int64_t{1} << 21;

/// Ascending. All quantities of a candidate are divisors: W x D x T = workers, and N x micro-batch x W = mini-batch.
std::vector<std::int64_t> divisors(std::int64_t number) {
  std::set<std::int64_t> all;
  for (std::int64_t d = 1; d * d <= number; ++d)
    if (number % d == 0) all.insert({d, number / d});
  return {all.begin(), all.end()};
}

bool allows(const std::vector<std::int64_t>& given, std::int64_t value) {
  return given.empty() || std::ranges::find(given, value) != given.end();
}

/// Empty lists of `given`: all planned values, except for `slices`.
std::vector<PipelineShape> shapes_of(const Generator& generator, std::int64_t depth, std::int64_t count,
                                     const GivenConfiguration& given, const std::vector<std::int64_t>& slices) {
  for (const auto& [axis, asked] : {std::pair(Axis::Pipelines, &given.pipelines), {Axis::Chunks, &given.chunks}}) {
    // The user demands a value of an axis that the schedule does not have.
    if (!asked->empty() && find_axis(generator, axis) == nullptr) return {};
  }
  if (find_axis(generator, Axis::Slices) == nullptr && !allows(slices, 1)) return {};
  const auto values_of = [&](const SupportedAxis& taken, const PipelineShape& shape) {
    if (taken.axis == Axis::Pipelines && !given.pipelines.empty()) return given.pipelines;
    if (taken.axis == Axis::Chunks && !given.chunks.empty()) return given.chunks;
    return taken.axis == Axis::Slices ? slices : taken.planned(shape);
  };
  return possible_shapes(generator, default_shape(generator, depth, count), values_of);
}

bool can_be_cut(const PlanProblem& problem) { return problem.layers.empty() && is_causal(problem.model.family); }

void require_cuttable(const PlanProblem& problem, const std::vector<std::int64_t>& slices) {
  for (const std::int64_t k : slices) {
    if (k == 1) continue;
    if (!can_be_cut(problem)) {
      reject("--slices {}: {} attends to later tokens, so only whole sequences can run; leave it out", k,
             problem.layers.empty() ? "model " + problem.model.name : "a user's model");
    }
    if (k > problem.workload.sequence)
      reject("--slices {}: a sequence has only {} tokens", k, problem.workload.sequence);
  }
}

class Enumeration {
 public:
  Enumeration(const PlanProblem& problem, const PlanOptions& options) : problem_(problem), options_(options) {
    for (const StageChoice& choice : {options.recompute, options.offload}) {
      if (choice.counts.size() > 1) counted_ = std::ssize(choice.counts);
      if (!choice.stages.empty()) last_stage_ = std::max<std::int64_t>(last_stage_, choice.stages.rbegin()->value());
    }
    if (options.partition.rule != PartitionRule::Listed) return;
    const auto& counts = options.partition.layers;
    cut_ = static_cast<std::int64_t>(counts.size());
    // Rejects a partition that does not fit the model before any candidate is made.
    (void)explicit_partition(counts, problem.model.layers, cut_);
  }

  std::vector<Candidate> run() {
    for (const std::int64_t tensor : divisors(problem_.workers)) {
      if (!allows(options_.given.tensor_parallel, tensor) || !find_split_error(problem_.model, tensor).empty())
        continue;
      for (const std::int64_t depth : divisors(problem_.workers / tensor))
        add_depth(tensor, depth, problem_.workers / tensor / depth);
    }
    return std::move(found_);
  }

 private:
  void add_depth(std::int64_t tensor, std::int64_t depth, std::int64_t groups) {
    if (depth > problem_.model.layers || problem_.mini_batch % groups != 0) return;
    if (!allows(options_.given.stages, depth) || !allows(options_.given.data_parallel, groups)) return;
    const std::int64_t share = problem_.mini_batch / groups;
    for (const std::int64_t size : divisors(share)) {
      if (!allows(options_.given.micro_batch_sizes, size)) continue;
      for (const ReplicaLayout layout : layouts(tensor, depth, groups))
        add({.data_parallel = groups, .micro_batch_size = size, .tensor_parallel = tensor, .replica_layout = layout},
            depth, share / size);
    }
  }

  /// Returns both layouts if they use different links between nodes.
  [[nodiscard]] std::vector<ReplicaLayout> layouts(std::int64_t tensor, std::int64_t depth, std::int64_t groups) const {
    if (options_.given.replica_layout) return {*options_.given.replica_layout};
    const std::int64_t places = problem_.machine.workers_per_node / tensor;  // ranks per node
    // If a node holds one rank or all ranks, both layouts use the same links.
    const bool differ = depth > 1 && groups > 1 && places > 1 && depth * groups > places;
    if (!differ) return {ReplicaLayout::Near};
    return {ReplicaLayout::Near, ReplicaLayout::Far};
  }

  [[nodiscard]] std::vector<std::int64_t> slices(std::int64_t depth) const {
    constexpr std::int64_t kMax = 16;
    constexpr std::int64_t kTokens = 128;  // of a slice; smaller kernels rarely pay
    if (!options_.given.slices.empty()) return options_.given.slices;
    std::vector<std::int64_t> counts = {1};
    if (depth == 1 || !can_be_cut(problem_)) return counts;
    for (std::int64_t k = 2; k <= std::min(kMax, problem_.workload.sequence / kTokens); k *= 2) counts.push_back(k);
    return counts;
  }

  /// Adds the candidate with every schedule and every planned shape that fits the depth and the given values.
  void add(const Candidate& like, std::int64_t depth, std::int64_t count) {
    // A forward, an input gradient and a weight gradient per micro-batch and stage.
    if (3 * depth * count > kMaxPlannedOps) return;
    for (const std::string& name : options_.schedules) {
      if (depth == 1 && name != options_.schedules.front()) continue;  // data parallelism is equal in all schedules
      const Generator& generator = find_generator(name);
      for (const PipelineShape& shape : shapes_of(generator, depth, count, options_.given, slices(depth))) {
        const bool halves = shape.scale == ScaleMethod::Halving;
        const std::int64_t held = generator.stages_per_worker(shape);
        if ((halves && like.micro_batch_size % 2 != 0) || held * depth > problem_.model.layers) continue;
        if (held * depth * count * (halves ? 2 : 1) * 3 > kMaxPlannedOps / shape.slices) continue;
        if (cut_ > 0 && held * depth != cut_) continue;
        if (counted_ > 0 && held * depth != counted_) continue;
        if (last_stage_ >= held * depth) continue;
        Candidate& found = found_.emplace_back(like);
        found.schedule = name;
        found.shape = shape;
        if (cut_ > 0) found.partition = options_.partition;
      }
    }
  }

  const PlanProblem& problem_;
  const PlanOptions& options_;
  std::int64_t cut_ = 0;          // number of stages of a given partition; 0: any
  std::int64_t counted_ = 0;      // number of stages of given counts of blocks; 0: any
  std::int64_t last_stage_ = -1;  // largest given stage
  std::vector<Candidate> found_;
};

bool can_deal_out(const PlanProblem& problem, std::int64_t workers) {
  for (const std::int64_t depth : divisors(workers))
    if (depth <= problem.model.layers && problem.mini_batch % (workers / depth) == 0) return true;
  return false;
}

std::string describe(const GivenConfiguration& given, const StageChoice& recompute, const StageChoice& offload) {
  std::vector<std::string> flags;
  const auto add = [&](const char* flag, const std::vector<std::int64_t>& values) {
    if (!values.empty()) flags.push_back(fmt::format("{} {}", flag, fmt::join(values, ",")));
  };
  add("--stages", given.stages);
  add("--data-parallel", given.data_parallel);
  add("--micro-batch-size", given.micro_batch_sizes);
  add("--pipelines", given.pipelines);
  add("--chunks", given.chunks);
  if (given.tensor_parallel != std::vector<std::int64_t>{1}) add("--tensor-parallel", given.tensor_parallel);
  if (given.slices != std::vector<std::int64_t>{1}) add("--slices", given.slices);
  if (given.replica_layout) flags.push_back(fmt::format("--replica-layout {}", to_text(*given.replica_layout)));
  if (recompute.rule == StageRule::Listed || recompute.counts.size() > 1)
    flags.push_back("--recompute " + to_text(recompute));
  if (offload.rule == StageRule::Listed || offload.counts.size() > 1) flags.push_back("--offload " + to_text(offload));
  return fmt::format("{}", fmt::join(flags, ", "));
}

[[noreturn]] void refuse_given(const PlanProblem& problem, PlanOptions options, const std::string& asked) {
  // The most special reason first, which has a message of its own.
  for (const std::int64_t ranks : options.given.tensor_parallel) require_divisible(problem.model, ranks);
  // Without the user's values: what would be possible.
  options.given = {};
  options.recompute = {StageRule::Auto};
  options.offload = {};
  const auto others = Enumeration(problem, options).run();
  const std::string instead =
      others.empty() ? ""
                     : fmt::format("; give fewer of these flags, or possible values such as {}", describe(others[0]));
  reject(
      "{}: no configuration of {} workers and mini-batch {} has these values (W x D = {}, N x micro-batch x W = {}){}",
      asked, problem.workers, problem.mini_batch, problem.workers, problem.mini_batch, instead);
}

/// Finds out which of the user's wishes is impossible, from the most general to the most special.
[[noreturn]] void refuse(const PlanProblem& problem, const PlanOptions& options) {
  if (!can_deal_out(problem, problem.workers)) {
    std::int64_t fewer = problem.workers;
    while (!can_deal_out(problem, fewer)) --fewer;  // a single worker always works
    reject(
        "{} workers: no W x D = {} has W dividing the mini-batch of {} and D at most the {} layers of {}; {} workers "
        "would do",
        problem.workers, problem.workers, problem.mini_batch, problem.model.layers, problem.model.name, fewer);
  }
  if (options.partition.rule == PartitionRule::Listed)
    reject("--partition {}: no schedule cuts the model for {} workers into so many stages", to_text(options.partition),
           problem.workers);
  const std::string asked = describe(options.given, options.recompute, options.offload);
  if (!asked.empty()) refuse_given(problem, options, asked);
  reject(
      "{} workers, mini-batch {}: none of the schedules {} takes any W x D = {} with D at most the {} layers of {}; "
      "allow others ({} takes any D and N)",
      problem.workers, problem.mini_batch, fmt::join(options.schedules, ", "), problem.workers, problem.model.layers,
      problem.model.name, kPlainSchedule);
}

}  // namespace

std::vector<Candidate> list_candidates(const PlanProblem& problem, const PlanOptions& options) {
  PlanOptions named = options;
  if (named.schedules.empty()) named.schedules = synchronous_schedules();
  for (const std::string& name : named.schedules) (void)find_generator(name);
  require_cuttable(problem, named.given.slices);
  auto found = Enumeration(problem, named).run();
  if (found.empty()) refuse(problem, named);
  return found;
}

std::vector<std::string> synchronous_schedules() {
  std::vector<std::string> names = {kPlainSchedule};
  for (const Generator& generator : generators())
    if (generator.synchronous && generator.name != kPlainSchedule) names.push_back(generator.name);
  return names;
}

}  // namespace chimera
