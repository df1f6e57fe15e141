#pragma once

// What a running job writes after each step: metrics, events for TensorBoard, and progress lines. Rank 0 of the running
// ranks writes; it is another process after a change of the running ranks.

#include "hugging_face/staged_folder.h"
#include "telemetry/event_file.h"
#include "telemetry/metrics.h"
#include "train/loop/trainer.h"
#include "train/observe/progress_report.h"

namespace chimera {

/// The outputs of one rank, for its own thread; ranks other than the writing one open nothing. Borrows the options.
class RunOutputs {
 public:
  explicit RunOutputs(const TrainOptions& options) : options_(options), pace_(options.updates.steps) {}

  /// Opens the files if the rank of `trainer` writes and they are not open. Removes the metrics of steps after the last
  /// step that `trainer` has closed (StepPosition), because these steps will be reported again. Call it when the
  /// trainer has weights, because a failure before that must not truncate the file. Throws ConfigError if a file cannot
  /// be written.
  void open(const Trainer& trainer);
  /// Closes the files before the running ranks change. After the next open(), a step may be reported again.
  void close();
  /// Writes the metrics of a step, unless this rank does not write or has already written the step.
  void note_step(StepMetrics step);
  /// Writes what is still buffered at the end of the run. Throws Error if the disk does not accept it.
  void finish();

  /// Returns whether this rank writes; false before open().
  [[nodiscard]] bool speaks() const { return speaks_; }
  /// Returns a line of JSON for each step, also of earlier attempts of the run, for --report and --trace.
  [[nodiscard]] const std::string& lines() const { return lines_; }

 private:
  const TrainOptions& options_;
  bool speaks_ = false;
  bool has_warned_ = false;
  double flops_ = 0;          // Of a step
  double peak_flops_ = 0;     // Job::peak_flops
  std::int64_t written_ = 0;  // Last step
  std::string lines_;
  std::optional<EventFile> events_;
  std::optional<MetricsFile> metrics_;
  std::optional<Progress> progress_;
  std::optional<FolderHold> exported_to_;  // Reserves the folder of --export
  RemainingTime pace_;
  std::chrono::steady_clock::time_point last_ = std::chrono::steady_clock::now();
};

}  // namespace chimera
