#pragma once
// What a step did, as a line of JSON.

#include <cstdint>
#include <optional>
#include <string>

#include "telemetry/loss_watch.h"
#include "telemetry/record_file.h"

namespace chimera {

struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double peak_memory_bytes = 0;
  bool is_skipped = false;             // it made no update: its loss or a gradient was not finite, or it is left out
  std::int64_t skipped = 0;            // such steps so far, since the run began or went on
  std::int64_t updates = 0;            // of each weight, since the first step of all
  LossWatch loss_watch = {};           // after this step
  std::optional<double> utilization;   // model FLOPs over what the machine's matrix products reach (MFU), where known
  std::optional<double> seconds_left;  // of the run, by its last steps
  std::optional<double> validation_loss;
  std::optional<std::string> parameters_hash;  // of canonical runs
  std::optional<std::string> sample;           // what the model says after --prompt
};

/// The step as one JSON object, numbers with 17 significant digits, ending in a line end. Those that are not finite, as
/// JSON has none, are null.
[[nodiscard]] std::string to_json_line(const StepMetrics& metrics);

/// What a run that goes on from `last_step` keeps of the metrics of its earlier starts: the file's first lines, as long
/// as they are whole and of steps up to that one. Empty for 0, and where there is no such file.
[[nodiscard]] std::string kept_lines(const std::string& path, std::int64_t last_step);

/// A file of one JSON object a step. Each line is written by one system call, so that no ending of the run cuts it.
class MetricsFile {
 public:
  /// Empties the file but for kept_lines(). Throws ConfigError where it cannot be written.
  explicit MetricsFile(const std::string& path, std::int64_t last_step = 0);
  /// Adds a line, as RecordFile::add() does.
  void write(const StepMetrics& metrics) { lines_.add(to_json_line(metrics)); }
  /// Does what RecordFile::finish() does.
  void finish() { lines_.finish(); }

 private:
  RecordFile lines_;
};

}  // namespace chimera
