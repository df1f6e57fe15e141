#pragma once

// Reads the files of a training run: its metrics, and the configuration in its checkpoints. `chimera top`, `chimera
// compare` and the page of `train --report` show them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chimera {

/// Settings of a run: pairs of field and value, such as `layout.schedule` and `chimera`.
using Configuration = std::vector<std::pair<std::string, std::string>>;

/// Returns the fields of a nested JSON object. Names of nested fields are joined with dots.
[[nodiscard]] Configuration flatten(const nlohmann::ordered_json& record);

/// Returns the configuration in the newest readable checkpoint in `folder`; empty if there is none.
[[nodiscard]] Configuration configuration_of(const std::string& folder);

/// Returns the value of a field, or `otherwise` if the configuration lacks it.
[[nodiscard]] std::string value_of(const Configuration& configuration, const std::string& field,
                                   const std::string& otherwise = "");

/// A line of a metrics file, for one step. Times are in seconds, losses in nats. docs/metrics.md explains the fields.
struct MetricsLine {
  std::int64_t step = 0;  ///< from 1
  double loss = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double peak_memory_bytes = 0;
  std::optional<double> used_memory_bytes = {};
  std::optional<double> learning_rate = {};
  std::optional<double> gradient_norm = {};
  std::optional<double> utilization = {};
  std::optional<double> seconds_left = {};
  std::optional<double> validation_loss = {};
  std::optional<double> workers = {};  ///< Ranks that run, if some are lost
};

/// Parses a metrics file (docs/metrics.md). Ignores an incomplete last line. Throws ConfigError, with `path` and line
/// number, for a line that is not a step.
[[nodiscard]] std::vector<MetricsLine> parse_metrics(const std::string& path, const std::string& text);

/// A run as its files describe it.
struct RunHistory {
  std::string name;     ///< Path as the user gave it
  std::string metrics;  ///< Path of the metrics file
  std::vector<MetricsLine> steps;
  Configuration configuration;  ///< Empty if no checkpoint has it
};

/// Returns `run`, or metrics.jsonl in that folder. Throws ConfigError if it does not exist.
[[nodiscard]] std::string metrics_path(const std::string& run);
/// Reads a run. `path` is a metrics file, or a folder that contains metrics.jsonl. The configuration comes from the
/// checkpoints in the folder of that file. Throws ConfigError if there is no such file, if it cannot be read, or if a
/// line is not a step.
[[nodiscard]] RunHistory read_run(const std::string& path);

/// Returns the number of steps of the whole run, or nullopt if its configuration does not have it.
[[nodiscard]] std::optional<std::int64_t> planned_steps(const RunHistory& run);

/// Results of a run. If there are several steps, the medians exclude the first one, which is slow because it touches
/// memory for the first time.
struct RunResults {
  std::int64_t steps = 0;  ///< Number of the last step
  double final_loss = 0;
  std::optional<double> best_validation_loss = {};
  double tokens_per_second = 0;  ///< median
  double step_seconds = 0;       ///< median
  double peak_memory_bytes = 0;
  double total_seconds = 0;  ///< Sum of step times
};
/// Returns the results of a run. Throws ConfigError if it has no step.
[[nodiscard]] RunResults summarize_run(const RunHistory& run);

/// Returns the median, or 0 if there are no values.
[[nodiscard]] double median_of(std::vector<double> values);

/// Cause of a utilization above 1.
inline constexpr const char* kWrongPeak = "matrix_flops of --machine or the peak of the GPU is too low";
/// Returns `41.2 %` for a utilization (MFU) of 0.412. Above 100 %, adds kWrongPeak.
[[nodiscard]] std::string mfu_text(double utilization);

}  // namespace chimera
