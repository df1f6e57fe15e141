#pragma once

// What a run writes about each step: StepMetrics, one line of JSON in the file of `--metrics`. Lines are appended whole
// and are kept in memory while the disk is full. A resumed run continues the file of its checkpoint. LossWatch detects
// loss spikes from the same numbers.

#include <sys/types.h>

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>

#include "core/file_descriptor.h"

namespace chimera {

/// Detects loss spikes. An exponentially weighted mean lags behind a falling loss and would hide a spike. Therefore the
/// distances from the preceding mean have their own weighted mean and variance (West, CACM 22(9), 1979, with a constant
/// weight).
struct LossWatch {
  static constexpr double kWeight = 0.2;           ///< Weight of a loss in the mean; the first losses weigh the same
  static constexpr double kDistanceWeight = 0.05;  ///< Weight of a distance in its mean and variance
  static constexpr std::int64_t kWarmUp = 20;      ///< Losses before the first check
  static constexpr double kLeastDeviation = 1.0 / 256;  ///< Minimum deviation, relative to the mean

  double mean = 0;
  double distance = 0;  ///< Weighted mean of loss minus preceding mean
  double variance = 0;  ///< Weighted variance of the distances
  std::int64_t losses = 0;

  [[nodiscard]] double expected() const { return mean + distance; }
  [[nodiscard]] double deviation() const;
  /// Returns by how many deviations the loss exceeds the expected loss; 0 during warm-up, never negative.
  [[nodiscard]] double deviations_above(double loss) const;
  void note(double loss);
};

/// Appends whole records to a file. If the disk is full or fails, records wait in memory until a later write succeeds.
/// The first failure and the recovery are reported on messages(). A pipe without a reader discards records.
class AppendFile {
 public:
  /// `file` is open for appending, with `size` bytes. `name` is for messages.
  AppendFile(FileDescriptor file, std::string name, off_t size = 0);
  /// Writes all waiting records in a system call.
  void add(const std::string& record);
  /// Throws Error if the disk still does not accept them.
  void finish();

 private:
  /// Returns the error number, or 0.
  int write_waiting();

  FileDescriptor file_;
  std::string name_;
  off_t size_;  // bytes of all complete records
  std::string waiting_;
  bool has_failed_ = false;
};

struct StepMetrics {
  std::int64_t step = 0;  // from 1
  double loss = 0;
  double gradient_norm = 0;  // before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;
  double step_seconds = 0;
  double tokens_per_second = 0;
  double peak_memory_bytes = 0;              // per process, or its tensors on a GPU; the largest of all ranks
  std::optional<double> used_memory_bytes;   // on a GPU, by all processes; the largest of all ranks
  std::optional<double> allocation_retries;  // on a GPU, since the start; the largest of all ranks
  bool is_skipped = false;             // no update: the loss or a gradient was not finite, or the step is excluded
  std::int64_t skipped = 0;            // since the run started or resumed
  std::int64_t updates = 0;            // per weight, over all attempts of the run
  LossWatch loss_watch = {};           // after this step
  std::optional<double> utilization;   // MFU: model FLOPs over the machine's matrix-product throughput
  std::optional<double> seconds_left;  // estimated from the last steps
  std::optional<double> validation_loss;
  std::optional<std::string> parameters_hash;  // only canonical runs
  std::optional<std::string> sample;           // text generated after --prompt
};

/// Returns one JSON line with 17 significant digits. A loss or gradient norm that is not finite becomes null.
[[nodiscard]] std::string to_json_line(const StepMetrics& metrics);

/// Returns the leading complete lines up to `last_step`, which a resumed run keeps. Empty if `last_step` is 0 or the
/// file does not exist.
[[nodiscard]] std::string read_kept_lines(const std::string& path, std::int64_t last_step);

/// Throws ConfigError unless the file is absent, empty, not regular, or its line of `last_step` has this loss (null:
/// not finite). An empty `loss` accepts any metrics of steps. Also throws if another run is writing the file.
void require_continuable_lines(const std::string& path, std::int64_t last_step,
                               const std::optional<nlohmann::json>& loss);

/// Throws ConfigError if another run is writing the file.
void require_unlocked_lines(const std::string& path);

/// File with a JSON object per step, locked while it is open.
class MetricsFile {
 public:
  /// Truncates the file to read_kept_lines(). Creates missing parent folders. Throws ConfigError if it cannot be
  /// written, or another run is writing it.
  explicit MetricsFile(const std::string& path, std::int64_t last_step = 0);
  void write(const StepMetrics& metrics) { lines_.add(to_json_line(metrics)); }
  void finish() { lines_.finish(); }

 private:
  AppendFile lines_;
};

}  // namespace chimera
