#include "telemetry/run_history.h"

#include <fmt/format.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iterator>
#include <limits>
#include <nlohmann/json.hpp>
#include <string_view>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/manifest.h"
#include "core/content.h"
#include "core/error.h"
#include "core/files.h"
#include "core/json.h"
#include "core/reject.h"
#include "core/value_text.h"

namespace chimera {
namespace {

using Json = nlohmann::json;

/// Returns nullopt if the field is missing or null, as a loss that is not finite.
std::optional<double> number_of(const Json& line, const char* field) {
  const auto found = line.find(field);
  if (found == line.end() || !found->is_number()) return std::nullopt;
  return found->get<double>();
}

StepMetrics parse_step(std::string_view text, const std::string& where) {
  const Json line = try_json(text);
  if (!line.is_object() || !line.contains("step") || !line["step"].is_number_integer()) {
    throw ConfigError(where +
                      ": this is not a step of a run; a metrics file has a JSON object with \"step\" on every line");
  }
  constexpr double kMissing = std::numeric_limits<double>::quiet_NaN();
  StepMetrics metrics{.step = line["step"].get<std::int64_t>(),
                      .loss = kMissing,
                      .gradient_norm = kMissing,
                      .learning_rate = kMissing,
                      .seconds_left = number_of(line, "eta_seconds")};
  visit_measurements(metrics, [&](const char* name, auto& value) {
    if (const auto number = number_of(line, name)) value = *number;
  });
  if (const auto workers = number_of(line, "workers")) metrics.workers = std::llround(*workers);
  if (line.contains("order") && line["order"].is_string()) metrics.order = line["order"].get<std::string>();
  return metrics;
}

/// Returns the configuration of the run in the newest readable checkpoint in `folder`, without `progress`, the state of
/// the run at that step; empty if there is none.
Configuration configuration_of(const std::string& folder) {
  const auto steps = list_steps(folder);
  // The newest checkpoint may be damaged; any of the run has the same configuration.
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    try {
      nlohmann::ordered_json record = read_manifest(checkpoint_path(folder, *step)).run;
      if (record.is_object()) record.erase("progress");  // belongs to the step
      return flatten(record);
    } catch (const Error&) {
      continue;  // `chimera checkpoint verify` reports the damage
    }
  }
  return {};
}

/// Returns `run`, or metrics.jsonl in that folder. Throws ConfigError if it does not exist.
std::string metrics_path(const std::string& run) {
  namespace fs = std::filesystem;
  const std::string path = is_folder(run) ? (fs::path(run) / "metrics.jsonl").string() : run;
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  // The type `none` means an error other than absence, such as a folder that this user may not read.
  if (type == fs::file_type::none) reject("{}: cannot be read ({})", path, error.message());
  if (type == fs::file_type::not_found)
    reject("{}: no such run; give the folder of --checkpoint that has a metrics.jsonl, or the file of --metrics", path);
  return path;
}

constexpr std::size_t kMaxMetricsBytes = std::size_t{1} << 30;

}  // namespace

Configuration flatten(const nlohmann::ordered_json& record, const std::string& prefix) {
  Configuration all;
  for (const auto& [field, value] : record.items()) {
    if (value.is_object()) std::ranges::move(flatten(value, prefix + field + "."), std::back_inserter(all));
    // Null stands for a setting that is not given.
    if (value.is_object() || value.is_null()) continue;
    all.emplace_back(prefix + field, value.is_string() ? value.get<std::string>() : json_text(value));
  }
  return all;
}

std::string value_of(const Configuration& configuration, const std::string& field, const std::string& otherwise) {
  const auto found = std::ranges::find(configuration, field, &std::pair<std::string, std::string>::first);
  return found == configuration.end() ? otherwise : found->second;
}

std::vector<StepMetrics> parse_metrics(const std::string& path, const std::string& text) {
  std::vector<StepMetrics> steps;
  std::vector<std::string_view> lines = split_at('\n', text);
  lines.pop_back();  // Has no end: empty, or still being written
  for (std::size_t i = 0; i < lines.size(); ++i)
    if (!lines[i].empty()) steps.push_back(parse_step(lines[i], fmt::format("{}:{}", path, i + 1)));
  return steps;
}

RunHistory read_run(const std::string& path) {
  RunHistory run{.name = path, .metrics = metrics_path(path), .steps = {}, .configuration = {}};
  // Shells complete folders with a slash.
  while (run.name.size() > 1 && run.name.ends_with('/')) run.name.pop_back();
  const std::string text = read_whole(run.metrics, kMaxMetricsBytes);
  require_no_foreign_content(run.metrics, text);
  run.steps = parse_metrics(run.metrics, text);
  // Checkpoints of a run are beside its metrics by default.
  const auto folder = std::filesystem::path(run.metrics).parent_path();
  run.configuration = configuration_of(folder.empty() ? "." : folder.string());
  return run;
}

std::vector<std::string> changes_of_order(const std::vector<StepMetrics>& steps) {
  std::vector<std::string> lines;
  for (const StepMetrics& step : steps)
    if (step.order) lines.push_back(fmt::format("step {}: {}", step.step, *step.order));
  return lines;
}

std::optional<std::int64_t> planned_steps(const RunHistory& run) {
  const std::string text = value_of(run.configuration, "hyperparameters.steps");
  // An absent field is an empty text, which gives 0.
  const std::int64_t steps = std::strtoll(text.c_str(), nullptr, 10);
  return steps > 0 ? std::optional(steps) : std::nullopt;
}

double median_of(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  // The upper median of an even number: a value that was measured.
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

std::string duration_text(double seconds) {
  const auto whole = static_cast<std::int64_t>(std::llround(std::clamp(seconds, 0.0, 1e12)));
  if (whole < 60) return fmt::format("{} s", whole);
  if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
  return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

std::string mfu_text(double utilization) {
  const std::string wrong = utilization > 1 ? fmt::format(" (impossible: {})", kWrongPeak) : "";
  return fmt::format("{:.1f} %{}", 100 * utilization, wrong);
}

RunResults summarize_run(const RunHistory& run) {
  if (run.steps.empty()) reject("{}: this run has not finished a step yet", run.metrics);
  RunResults figures{.steps = run.steps.back().step, .final_loss = run.steps.back().loss};
  std::vector<double> rates;
  std::vector<double> seconds;
  for (const StepMetrics& step : run.steps) {
    figures.peak_memory_bytes = std::max(figures.peak_memory_bytes, step.peak_memory_bytes);
    figures.total_seconds += step.step_seconds;
    if (step.validation_loss) {
      figures.best_validation_loss =
          std::min(*step.validation_loss, figures.best_validation_loss.value_or(*step.validation_loss));
    }
    // The first step touches all memory for the first time.
    if (&step == &run.steps.front() && run.steps.size() > 1) continue;
    rates.push_back(step.tokens_per_second);
    seconds.push_back(step.step_seconds);
  }
  figures.tokens_per_second = median_of(std::move(rates));
  figures.step_seconds = median_of(std::move(seconds));
  return figures;
}

}  // namespace chimera
