#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

// What a run was started with, as its checkpoints say it: names with a dot between section and field, and values as
// text.

// What a run has left in its metrics file (docs/metrics.md), whoever wrote it and wherever it runs.

namespace chimera {

/// `layout.schedule` and `chimera`, in the order of the record.
using Configuration = std::vector<std::pair<std::string, std::string>>;

/// The fields of a record in JSON, nested ones with dots between their names.
[[nodiscard]] Configuration flattened(const nlohmann::ordered_json& record);

/// The configuration of the newest checkpoint in a folder; empty where none can be read.
[[nodiscard]] Configuration configuration_of(const std::string& folder);

/// A field's value, or `otherwise`.
[[nodiscard]] std::string value_of(const Configuration& configuration, const std::string& field,
                                   const std::string& otherwise = "");

/// A line of the metrics. Times in seconds, losses in nats.
struct StepRecord {
  std::int64_t step = 0;  ///< from 1
  double loss = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double peak_memory_bytes = 0;
  std::optional<double> learning_rate = {};
  std::optional<double> gradient_norm = {};
  std::optional<double> utilization = {};
  std::optional<double> seconds_left = {};
  std::optional<double> validation_loss = {};
};

/// The steps of a metrics file's text. What follows the last line end is being written still, and is left out. Throws
/// ConfigError, with `path` and the line, for a line that is no step.
[[nodiscard]] std::vector<StepRecord> parse_metrics(const std::string& path, const std::string& text);

/// A run as its files tell it.
struct RunHistory {
  std::string name;     ///< as it was asked for
  std::string metrics;  ///< the file
  std::vector<StepRecord> steps;
  Configuration configuration;  ///< empty where no checkpoint says it
};

/// The metrics file that a path names: itself, or metrics.jsonl of the folder. Throws ConfigError where there is none.
[[nodiscard]] std::string metrics_path(const std::string& run);
/// Reads a run: a metrics file, or a folder that has one and perhaps checkpoints. Throws ConfigError.
[[nodiscard]] RunHistory read_run(const std::string& path);

/// The steps of the whole run, where its configuration says them.
[[nodiscard]] std::optional<std::int64_t> planned_steps(const RunHistory& run);

/// What a run's steps come to. Medians leave out the first step, where there are more: it touches memory first.
struct RunFigures {
  std::int64_t steps = 0;  ///< that were done
  double final_loss = 0;
  std::optional<double> best_validation_loss = {};
  double tokens_per_second = 0;  ///< median
  double step_seconds = 0;       ///< median
  double peak_memory_bytes = 0;
  double total_seconds = 0;  ///< in steps
};
/// Throws ConfigError, naming the run, where it has no step yet.
[[nodiscard]] RunFigures figures_of(const RunHistory& run);

/// The median; of none 0.
[[nodiscard]] double median_of(std::vector<double> values);

}  // namespace chimera
