#pragma once

// Console output of `chimera train`, from rank 0 or the launcher. describe() returns the lines before the first step.
// During the run, Progress writes lines with loss, speed and remaining time. After the run, speed_summary()
// (step_summary.h) compares the measured step time with its predictions, and end_of_run_text() lists the files and the
// next commands. The other functions each format one line or field, and other commands use some of them.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <stop_token>
#include <thread>

#include "data/corpus.h"
#include "telemetry/metrics.h"
#include "train/setup/job.h"

namespace chimera {

/// Returns a line with the layers of each stage; empty if their numbers are equal by default or by request. `rule` is
/// the rule of --partition.
[[nodiscard]] std::string partition_line(const JobShape& job, PartitionRule rule);

/// Returns a line with the learning rate and its warm-up.
[[nodiscard]] std::string learning_rate_line(const TrainOptions& options);

/// Returns a line about the schedule that was second best (`runner_up`); empty if the user has chosen the schedule.
[[nodiscard]] std::string schedule_line(const std::optional<RunnerUp>& runner_up);

/// Returns the FLOPs of a step of all data-parallel groups, by model_flops() (model_config/footprint.h).
[[nodiscard]] double step_flops(const JobShape& job, const TrainOptions& options);

/// Estimate of a run's remaining time.
class RemainingTime {
 public:
  /// `steps` is the last step of the run.
  explicit RemainingTime(std::int64_t steps) : steps_(steps) {}
  /// Adds `step` (from 1), which ended `seconds` after the step before it, with validations and saves between. Returns
  /// the remaining seconds by the mean of the last 20 steps. The first step is slow, so it is dropped when the second
  /// is added.
  [[nodiscard]] double seconds_left(std::int64_t step, double seconds);

 private:
  std::int64_t steps_;
  bool has_first_ = false;  // `last_` is the first step alone
  std::deque<double> last_;
};

/// Returns `981 MiB`, `1.20 GiB`.
[[nodiscard]] std::string memory_text(double bytes);

/// Returns `3499 tok/s`, `12.3 ktok/s`.
[[nodiscard]] std::string tokens_per_second(double rate);

/// Maximum number of characters of a progress line, without the time of day.
inline constexpr std::size_t kProgressColumns = 100;

/// Returns `step 20/100  loss 3.2145  grad 0.92  12.3 ktok/s  MFU 41.2 %  1.20 GiB  0.412 s/step  ETA 33 s`. `steps` is
/// the last step of the run. If the line exceeds `columns`, drops fields in this order: s/step, grad, memory, MFU, ETA,
/// tok/s. Step and losses stay.
[[nodiscard]] std::string progress_line(const StepMetrics& metrics, std::int64_t steps,
                                        std::size_t columns = kProgressColumns);

/// Returns `  sample: the king went to`, with blanks for control characters.
[[nodiscard]] std::string sample_line(const std::string& sample);

/// Selects the steps for which Progress writes a line if standard error is not a terminal, for example a log file.
class LogInterval {
 public:
  /// `steps` is the last step of the run, and `every` the value of --log-every. If both fields of `every` are 0, about
  /// 20 steps of the run have a line, and also each step that ends kLogSeconds or more after the last line.
  LogInterval(std::int64_t steps, SaveInterval every) : steps_(steps), every_(every) {}
  /// Returns whether `step` (from 1) has a line if `seconds` have passed since the last line. The first and the last
  /// step always have one.
  [[nodiscard]] bool shows(std::int64_t step, double seconds) const;
  /// Returns the seconds without a line after which Progress reports the step that is still running.
  [[nodiscard]] double max_silence() const { return every_.seconds > 0 ? every_.seconds : kLogSeconds; }

  static constexpr double kLogSeconds = 10;

 private:
  std::int64_t steps_;
  SaveInterval every_;
};

/// Returns `step 12/100  running for 20 s`.
[[nodiscard]] std::string running_line(std::int64_t step, std::int64_t steps, std::chrono::duration<double> time);

/// Shows the progress of a run on standard error. On a terminal, it rewrites one line after each step. Other outputs
/// get a line for the steps that LogInterval selects and for each validation or sample, with the time of day. A thread
/// writes running_line() during long steps. Rank 0 calls show() after each step.
class Progress {
 public:
  /// `first_step` is the last step before this run (0: a new run), `steps` the last step of this run, and `every` the
  /// value of --log-every.
  Progress(std::int64_t first_step, std::int64_t steps, SaveInterval every);
  void show(const StepMetrics& metrics);

 private:
  using Clock = std::chrono::steady_clock;
  void watch(const std::stop_token& stopped);
  void put(const std::string& line, bool stays);

  std::int64_t steps_;
  LogInterval pace_;
  bool on_terminal_;
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::int64_t running_;                    // from 1
  Clock::time_point began_ = Clock::now();  // of the current step
  Clock::time_point last_line_ = Clock::now();
  std::jthread watcher_;  // last member, because it uses the others
};

/// Returns lines about model, schedule and data, and a picture of the schedule if it has several workers, at most 16
/// stages and at most 32 micro-batches.
[[nodiscard]] std::string describe(const Job& job);

/// Returns the last lines of a finished run: its checkpoint and exported model, and commands that use them. `exported`
/// is the name of the exported folder, if any.
[[nodiscard]] std::string end_of_run_text(const Job& job, const std::string& exported);

}  // namespace chimera
