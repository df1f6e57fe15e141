#pragma once

// Reads what a run has written: its metrics file and the configuration in its checkpoints. `chimera top`, `chimera
// compare` and the page of `train --report` show it.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace chimera {

/// Pairs like `layout.schedule` and `chimera`.
using Configuration = std::vector<std::pair<std::string, std::string>>;

/// Joins names of nested fields with dots.
[[nodiscard]] Configuration flatten(const nlohmann::ordered_json& record);

/// Reads the newest readable checkpoint; may be empty.
[[nodiscard]] Configuration configuration_of(const std::string& folder);

[[nodiscard]] std::string value_of(const Configuration& configuration, const std::string& field,
                                   const std::string& otherwise = "");

/// A line of a metrics file. Times in seconds, losses in nats.
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
};

/// Parses a metrics file (docs/metrics.md). Ignores an incomplete last line. Throws ConfigError, with `path` and line
/// number, for a line that is not a step.
[[nodiscard]] std::vector<MetricsLine> parse_metrics(const std::string& path, const std::string& text);

struct RunHistory {
  std::string name;     ///< Path as given
  std::string metrics;  ///< Path
  std::vector<MetricsLine> steps;
  Configuration configuration;  ///< Empty if no checkpoint has it
};

/// Returns `run`, or metrics.jsonl in that folder. Throws ConfigError if it does not exist.
[[nodiscard]] std::string metrics_path(const std::string& run);
/// Reads a metrics file or its folder, and the configuration from its checkpoints. Throws ConfigError.
[[nodiscard]] RunHistory read_run(const std::string& path);

[[nodiscard]] std::optional<std::int64_t> planned_steps(const RunHistory& run);

/// Results of a run. Medians exclude the first step, which touches memory first, if there are more.
struct RunFigures {
  std::int64_t steps = 0;  ///< Number of the last step
  double final_loss = 0;
  std::optional<double> best_validation_loss = {};
  double tokens_per_second = 0;  ///< median
  double step_seconds = 0;       ///< median
  double peak_memory_bytes = 0;
  double total_seconds = 0;  ///< Sum of step times
};
/// Throws ConfigError if the run has no step.
[[nodiscard]] RunFigures figures_of(const RunHistory& run);

/// Returns 0 without values.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace chimera
