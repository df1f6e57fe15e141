#pragma once

// Reads the files of a training run: its metrics, and the configuration in its checkpoints. `chimera top`, `chimera
// compare` and the page of `train --report` show them.

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "telemetry/metrics.h"

namespace chimera {

/// Settings of a run: pairs of field and value, such as `layout.schedule` and `chimera`.
using Configuration = std::vector<std::pair<std::string, std::string>>;

/// Returns the fields of a nested JSON object, in its order. Names of nested fields are joined with dots, after
/// `prefix`.
[[nodiscard]] Configuration flatten(const nlohmann::ordered_json& record, const std::string& prefix = "");

/// Returns the value of a field, or `otherwise` if the configuration lacks it.
[[nodiscard]] std::string value_of(const Configuration& configuration, const std::string& field,
                                   const std::string& otherwise = "");

/// Parses the lines of a metrics file (docs/metrics.md). Reads only the fields that views show; the others, such as
/// StepMetrics::tokens, keep their defaults. A loss, gradient norm or learning rate that a line lacks is not a number.
/// Ignores an incomplete last line. Throws ConfigError, with `path` and line number, for a line that is not a step.
[[nodiscard]] std::vector<StepMetrics> parse_metrics(const std::string& path, const std::string& text);

/// A run as its files describe it.
struct RunHistory {
  std::string name;     ///< Path as the user gave it
  std::string metrics;  ///< Path of the metrics file
  std::vector<StepMetrics> steps;
  Configuration configuration;  ///< Empty if no checkpoint has it
};

/// Reads a run. `path` is a metrics file, or a folder that contains metrics.jsonl. The configuration comes from the
/// checkpoints in the folder of that file. Throws ConfigError if there is no such file, if it cannot be read, or if a
/// line is not a step.
[[nodiscard]] RunHistory read_run(const std::string& path);

/// Returns a line for each change of the order of ops (--adapt all), such as `step 56: rank 1 takes ...`.
[[nodiscard]] std::vector<std::string> changes_of_order(const std::vector<StepMetrics>& steps);

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

/// Returns the median (of an even number of values, the larger one in the middle), or 0 if there are no values.
[[nodiscard]] double median_of(std::vector<double> values);

/// Returns `45 s`, `3 min 20 s`, `2 h 5 min`.
[[nodiscard]] std::string duration_text(double seconds);

/// Cause of a utilization above 1.
inline constexpr const char* kWrongPeak = "matrix_flops of --machine or the peak of the GPU is too low";
/// Returns `41.2 %` for a utilization (MFU) of 0.412. Above 100 %, adds kWrongPeak.
[[nodiscard]] std::string mfu_text(double utilization);

}  // namespace chimera
