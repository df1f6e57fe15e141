#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>

#include "core/file_descriptor.h"

// The loss as it goes, for those who look for spikes: what the next one should be, and how far losses lie from that.

// A file to which a run adds records, whatever its disk does.

// What a step did, as a line of JSON.

namespace chimera {

/// An exponentially weighted mean of the losses lags behind a loss that falls, so that a spike would hide in what the
/// loss has fallen by. So it is the distances from the mean of the losses before whose mean and deviation count, both
/// weighted exponentially in their turn (variance: West, CACM 22(9), 1979, with a constant weight).
struct LossWatch {
  static constexpr double kWeight = 0.2;                ///< of a loss in the mean; the first ones count alike
  static constexpr double kDistanceWeight = 0.05;       ///< of a distance in their mean and variance, likewise
  static constexpr std::int64_t kWarmUp = 20;           ///< losses before any is looked at
  static constexpr double kLeastDeviation = 1.0 / 256;  ///< of the mean: losses that hardly differ say little

  double mean = 0;
  double distance = 0;  ///< mean of what losses lay above the mean before them
  double variance = 0;  ///< of that
  std::int64_t losses = 0;

  /// What the next loss should be.
  [[nodiscard]] double expected() const { return mean + distance; }
  [[nodiscard]] double deviation() const;
  /// By how many deviations a loss lies above the expected one; 0 until the warm-up is over, and where it is not above.
  [[nodiscard]] double deviations_above(double loss) const;
  void note(double loss);
};

/// Records that a disk has no room for, or fails to take, hold up nothing: they wait in memory, and are written with
/// the next one that finds room. Each is whole in the file or not there at all, unless the machine ends. That it fails,
/// and that it works again, is told on messages(). A pipe that nobody reads any more takes no records, which is no
/// failure.
class RecordFile {
 public:
  /// `file`: open for appending. `name` in messages: the flag and the path. `size`: of what is in it.
  RecordFile(FileDescriptor file, std::string name, off_t size = 0);
  /// Adds a record, by one system call together with those that wait.
  void add(const std::string& record);
  /// At the end: throws Error where records wait that the disk still does not take.
  void finish();

 private:
  /// Returns the error, 0 where nothing waits any more.
  int write_waiting();

  FileDescriptor file_;
  std::string name_;
  off_t size_;           // of all whole records
  std::string waiting_;  // records, one after the other
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
