#include "regression/measured_run.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "core/error.h"
#include "core/printable.h"
#include "generate/registry.h"
#include "plan/predict.h"

namespace chimera {
namespace {

constexpr std::int64_t kMaxCount = 1'000'000'000;

std::vector<std::string> run_keys() {
  std::vector<std::string> keys = {
      "figure",    "step-seconds", "sequences-per-second", "model",           "layers",         "hidden",
      "heads",     "vocabulary",   "key-value-heads",      "sequence",        "dtype",          "optimizer",
      "schedule",  "stages",       "data-parallel",        "micro-batches",   "partition",      "micro-batch-size",
      "recompute", "sync",         "replica-layout",       "shard-optimizer", "blocking-sends", "tied"};
  for (const ShapeAxis& axis : shape_axes()) keys.emplace_back(axis.name);
  return keys;
}

/// The keys of one run, with those at the top level.
class RunKeys {
 public:
  RunKeys(const std::string& path, const toml::table& run, const toml::table& all)
      : path_(path), run_(run), all_(all) {}

  [[nodiscard]] const toml::node* find(std::string_view key) const {
    const toml::node* own = run_.get(key);
    return own != nullptr ? own : all_.get(key);
  }

  [[noreturn]] void fail(const toml::node& node, const std::string& what) const {
    throw ConfigError(fmt::format("{}:{}: {}", path_, node.source().begin.line, what));
  }
  [[noreturn]] void fail(const std::string& what) const { fail(run_, what); }

  [[nodiscard]] std::optional<std::int64_t> count(std::string_view key) const {
    const toml::node* node = find(key);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value_exact<std::int64_t>();
    if (!value || *value < 1 || *value > kMaxCount)
      fail(*node, fmt::format("'{}' must be a whole number from 1 to {}", key, kMaxCount));
    return value;
  }
  [[nodiscard]] std::int64_t count(std::string_view key, std::int64_t usual) const {
    return count(key).value_or(usual);
  }
  [[nodiscard]] std::int64_t required_count(std::string_view key) const {
    const auto value = count(key);
    if (!value) fail(fmt::format("'{}' is missing; add it to the run, or at the top for all runs", key));
    return *value;
  }

  [[nodiscard]] std::string text(std::string_view key, const std::string& usual) const {
    const toml::node* node = find(key);
    if (node == nullptr) return usual;
    const auto value = node->value_exact<std::string>();
    if (!value) fail(*node, fmt::format("'{}' must be a text", key));
    return *value;
  }

  [[nodiscard]] bool truth(std::string_view key) const {
    const toml::node* node = find(key);
    if (node == nullptr) return false;
    const auto value = node->value_exact<bool>();
    if (!value) fail(*node, fmt::format("'{}' must be true or false", key));
    return *value;
  }

  /// A flag of `chimera train` whose value is a word.
  [[nodiscard]] std::optional<bool> tied() const {
    if (find("tied") == nullptr) return std::nullopt;
    return text("tied", "") == "true";
  }

  [[nodiscard]] std::optional<double> seconds(std::string_view key) const {
    const toml::node* node = run_.get(key);
    if (node == nullptr) return std::nullopt;
    const auto value = node->value<double>();
    if (!value || !(*value > 0) || *value > kMaxSeconds)
      fail(*node, fmt::format("'{}' must be a number above 0, at most {:g}", key, kMaxSeconds));
    return value;
  }

 private:
  const std::string& path_;
  const toml::table& run_;
  const toml::table& all_;
};

void expect_keys(const toml::table& table, const std::string& path, const std::vector<std::string>& keys) {
  for (const auto& [key, node] : table) {
    if (std::ranges::count(keys, std::string(key.str())) > 0) continue;
    throw ConfigError(fmt::format("{}:{}: {}", path, node.source().begin.line, unknown_name("key", key.str(), keys)));
  }
}

PlanProblem problem_of(const RunKeys& keys) {
  PlanProblem problem;
  const ModelOverrides overrides{.layers = keys.count("layers"),
                                 .hidden = keys.count("hidden"),
                                 .heads = keys.count("heads"),
                                 .key_value_heads = keys.count("key-value-heads"),
                                 .vocabulary = keys.count("vocabulary"),
                                 .tied = keys.tied()};
  const std::string model = keys.text("model", "");
  if (model.empty()) keys.fail("'model' is missing; add it to the run, or at the top for all runs");
  problem.model = with_overrides(find_model(model), overrides);
  problem.workload = workload_of(parse_named<DataType>("dtype", keys.text("dtype", "float32")),
                                 parse_named<OptimizerKind>("optimizer", keys.text("optimizer", "adamw")),
                                 keys.count("sequence", 128));
  problem.sync = parse_named<AllReducePlacement>("sync", keys.text("sync", "eager-opt"));
  problem.shard_optimizer = keys.truth("shard-optimizer");
  problem.blocking_sends = keys.truth("blocking-sends");
  return problem;
}

void set_axis(const RunKeys& keys, const ShapeAxis& axis, PipelineShape& shape) {
  if (axis.is_number()) {
    if (const auto value = keys.count(axis.name)) axis.set(shape, *value);
    return;
  }
  const toml::node* node = keys.find(axis.name);
  if (node == nullptr) return;
  const std::string name = keys.text(axis.name, "");
  const auto found = std::ranges::find(axis.names, name);
  if (found == axis.names.end())
    keys.fail(*node, unknown_name(axis.name, name, std::vector<std::string>(axis.names.begin(), axis.names.end())));
  axis.set(shape, found - axis.names.begin());
}

Candidate candidate_of(const RunKeys& keys) {
  Candidate candidate;
  candidate.schedule = keys.text("schedule", kDefaultSchedule);
  const Generator& generator = find_generator(candidate.schedule);
  candidate.shape = default_shape(generator, keys.required_count("stages"), keys.required_count("micro-batches"));
  for (const SupportedAxis& taken : generator.axes) set_axis(keys, shape_axis(taken.axis), candidate.shape);
  candidate.data_parallel = keys.count("data-parallel", 1);
  candidate.micro_batch_size = keys.count("micro-batch-size", 1);
  candidate.partition = parse_partition(keys.text("partition", "even"));
  candidate.replica_layout = parse_named<ReplicaLayout>("replica-layout", keys.text("replica-layout", "near"));
  const StageChoice recompute = parse_stages(kRecomputeFlag, keys.text("recompute", "none"));
  if (recompute.rule == StageRule::Auto) keys.fail("'recompute' must be what the run did, not auto");
  candidate.blocks = recompute.counts_blocks() ? recompute : StageChoice();
  if (const auto refusal = generator.find_shape_error(candidate.shape)) keys.fail(*refusal);
  candidate.recompute = resolve_stages(recompute, kRecomputeFlag, num_stages(candidate), {});
  return candidate;
}

MeasuredRun run_of(const RunKeys& keys) {
  MeasuredRun run{.figure = keys.text("figure", ""), .problem = problem_of(keys), .candidate = candidate_of(keys)};
  const Candidate& candidate = run.candidate;
  run.problem.workers = candidate.data_parallel * candidate.shape.stages;
  run.problem.mini_batch = candidate.data_parallel * candidate.shape.micro_batches * candidate.micro_batch_size;
  const auto step = keys.seconds("step-seconds");
  const auto rate = keys.seconds("sequences-per-second");
  if (step.has_value() == rate.has_value())
    keys.fail("a run needs what was measured: either 'step-seconds' or 'sequences-per-second'");
  run.step_seconds = step ? *step : static_cast<double>(run.problem.mini_batch) / *rate;
  return run;
}

toml::table parse_runs(const std::string& text, const std::string& path) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(
        fmt::format("{}:{}: {}", path, error.source().begin.line, printable(error.description(), kParserMessage)));
  }
}

}  // namespace

std::vector<MeasuredRun> measured_runs(const std::string& text, const std::string& path) {
  const toml::table all = parse_runs(text, path);
  const toml::array* runs = all.get_as<toml::array>("runs");
  if (runs == nullptr || runs->empty())
    throw ConfigError(fmt::format("{}: has no [[runs]]; expected a table of them for each measured run", path));
  std::vector<std::string> keys = run_keys();
  std::vector<MeasuredRun> found;
  for (const toml::node& node : *runs) {
    const toml::table* run = node.as_table();
    if (run == nullptr) throw ConfigError(fmt::format("{}:{}: a run must be a table", path, node.source().begin.line));
    expect_keys(*run, path, keys);
    const RunKeys merged(path, *run, all);
    try {
      found.push_back(run_of(merged));
    } catch (const ConfigError& error) {
      if (std::string(error.what()).starts_with(path)) throw;
      merged.fail(error.what());
    }
  }
  keys.emplace_back("runs");
  expect_keys(all, path, keys);
  return found;
}

}  // namespace chimera
