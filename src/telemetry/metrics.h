#pragma once

// The results of each step (StepMetrics), and the file of `--metrics` (MetricsFile). Rank 0 appends one line of JSON
// per step to this file. Lines are written whole and wait in memory while the disk is full. A run that resumes from a
// checkpoint continues the file of the earlier run. LossWatch detects spikes of the loss (--spike).

#include <sys/types.h>

#include <array>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "core/file_descriptor.h"

namespace chimera {

/// Detects loss spikes. It keeps an exponentially weighted mean of the losses. This mean lags behind a falling loss, so
/// a spike might still be below it. Therefore it also keeps a weighted mean and variance of the *distances*: loss minus
/// the mean before it (West, CACM 22(9), 1979, with a constant weight). A loss is a spike if it exceeds the mean plus
/// the mean distance by many standard deviations.
struct LossWatch {
  static constexpr double kWeight = 0.2;  ///< Weight of a new loss in the mean; the first losses weigh the same
  static constexpr double kDistanceWeight = 0.05;     ///< Weight of a new distance in its mean and variance
  static constexpr std::int64_t kWarmUp = 20;         ///< Number of losses before the first check
  static constexpr double kMinDeviation = 1.0 / 256;  ///< Minimum of deviation(), relative to the mean

  double mean = 0;          ///< Weighted mean of the losses
  double distance = 0;      ///< Weighted mean of loss minus preceding mean
  double variance = 0;      ///< Weighted variance of the distances
  std::int64_t losses = 0;  ///< Number of losses so far

  /// Returns the expected next loss.
  [[nodiscard]] double expected() const { return mean + distance; }
  /// Returns the standard deviation of the distances.
  [[nodiscard]] double deviation() const;
  /// Returns by how many standard deviations the loss exceeds the expected loss; 0 during warm-up, never negative.
  [[nodiscard]] double deviations_above(double loss) const;
  /// Adds the loss of a step.
  void note(double loss);
};

/// Appends whole records to a file. If the disk is full or fails, records wait in memory until a later write succeeds.
/// The first failure and the recovery are reported on messages() (core/console.h). A pipe without a reader discards
/// records. For one thread.
class AppendFile {
 public:
  /// `file` is open for appending, with `size` bytes. `name` is for messages.
  AppendFile(FileDescriptor file, std::string name, off_t size = 0);
  /// Adds a record, which has its own line end, and writes all waiting records with one system call.
  void add(const std::string& record);
  /// Writes the waiting records. Throws Error if the disk still does not accept them.
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

/// Results of a step, equal on all ranks.
struct StepMetrics {
  std::int64_t step = 0;     // from 1
  double time = 0;           // seconds since 1970 at its end; 0: not known
  double loss = 0;           // mean over the mini-batch, in nats
  double gradient_norm = 0;  // of all gradients, before clipping
  double learning_rate = 0;
  std::int64_t tokens = 0;  // tokens of the mini-batch
  double step_seconds = 0;
  double tokens_per_second = 0;  // of all ranks together
  double peak_memory_bytes = 0;  // memory of a process, or of its tensors on a GPU; the largest of all ranks
  std::optional<double> used_memory_bytes = {};  // memory of a GPU that all processes use; the largest of all ranks
  std::optional<double> allocation_retries =
      {};                                     // of a GPU's memory allocator since the start; the largest of all ranks
  std::optional<double> op_sum_seconds = {};  // seconds of rank 0 in sums inside ops; only with tensor parallelism
  // No update: the loss or a gradient was not finite, or the step is left out (train/recover/loss_guard.h)
  bool is_skipped = false;
  std::int64_t skipped = 0;                 // number of skipped steps since the run started or resumed
  std::int64_t updates = 0;                 // number of updates of each weight, over all attempts of the run
  LossWatch loss_watch = {};                // state of the watch after this step
  std::optional<double> utilization = {};   // MFU: model FLOPs over the machine's matrix-product throughput
  std::optional<double> seconds_left = {};  // estimated from the last steps
  std::optional<double> validation_loss = {};
  std::optional<std::string> parameters_hash = {};  // only with --reduction canonical
  std::optional<std::int64_t> workers = {};         // ranks that run, if some are lost (--recover reroute)
  // With --adapt all, the speeds that the order of ops is made for. Factors are [launched rank], the number of the rank
  // at the start of the job: 2 if its ops take twice as long; empty: all ranks are equally fast. A delay has two
  // launched ranks and the seconds of a message between them
  std::vector<double> factors = {};
  std::vector<std::array<double, 3>> delays = {};
  std::optional<std::string> order = {};   // how the order of ops changed before this step (--adapt all)
  std::optional<std::string> sample = {};  // text generated after --prompt
};

/// Calls visit(name, number) for the measurements of a step, with their names in metrics.jsonl and TensorBoard. Each
/// number is a double or an optional one.
void visit_measurements(auto& metrics, const auto& visit) {
  visit("loss", metrics.loss);
  visit("grad_norm", metrics.gradient_norm);
  visit("learning_rate", metrics.learning_rate);
  visit("step_seconds", metrics.step_seconds);
  visit("tokens_per_second", metrics.tokens_per_second);
  visit("peak_memory_bytes", metrics.peak_memory_bytes);
  visit("used_memory_bytes", metrics.used_memory_bytes);
  visit("op_sum_seconds", metrics.op_sum_seconds);
  visit("allocation_retries", metrics.allocation_retries);
  visit("mfu", metrics.utilization);
  visit("validation_loss", metrics.validation_loss);
}

/// Returns one JSON line, with its line end, with 17 significant digits. A number that is not finite becomes null.
[[nodiscard]] std::string to_json_line(const StepMetrics& metrics);

/// Returns the lines of a metrics file that a run keeps if it resumes after `last_step`: the complete lines up to this
/// step. Empty if `last_step` is 0 or the file does not exist.
[[nodiscard]] std::string read_kept_lines(const std::string& path, std::int64_t last_step);

/// Throws ConfigError if a run that resumes after `last_step` must not continue the metrics file, because the file is
/// of another run: no line of `last_step` has the loss `loss` (JSON null: not finite). If `loss` is empty, any file
/// that begins with the line of a step is accepted. A file that is absent, empty or not regular is always accepted.
/// Also throws if another run is writing the file.
void require_continuable_lines(const std::string& path, std::int64_t last_step,
                               const std::optional<nlohmann::json>& loss);

/// Throws ConfigError if another run is writing the file.
void require_unlocked_lines(const std::string& path);

/// An open metrics file with a JSON object per step, locked against other runs.
class MetricsFile {
 public:
  /// Opens the file and truncates it to read_kept_lines(): to nothing if `last_step` is 0. Does not truncate a pipe or
  /// a device. Creates missing parent folders. Throws ConfigError if it cannot be written, or another run is writing
  /// it.
  explicit MetricsFile(const std::string& path, std::int64_t last_step = 0);
  /// Appends the line of a step.
  void write(const StepMetrics& metrics) { lines_.add(to_json_line(metrics)); }
  /// Writes the waiting lines. Throws Error if the disk still does not accept them.
  void finish() { lines_.finish(); }

 private:
  AppendFile lines_;
};

}  // namespace chimera
