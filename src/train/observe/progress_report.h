#pragma once

// What a user sees of a run: the start with the schedule's picture, a line per step with loss, speed and the time that
// is left, and the summary that compares the measured step with its prediction.

#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <stop_token>
#include <string>
#include <thread>

#include "data/corpus.h"
#include "telemetry/metrics.h"
#include "train/observe/measured_step.h"
#include "train/setup/job.h"

// Console output of a run.

namespace chimera {

/// Returns the FLOPs of a step by model_flops().
[[nodiscard]] double step_flops(const Job& job);

/// Estimate of a run's remaining time.
class Pace {
 public:
  explicit Pace(std::int64_t steps) : steps_(steps) {}
  /// `step` (from 1) took `seconds` including validation before it. Uses the mean of the last 20 steps; the slow first
  /// step counts only until the second.
  [[nodiscard]] double seconds_left(std::int64_t step, double seconds);

 private:
  std::int64_t steps_;
  std::deque<double> last_;
};

/// Returns `45 s`, `3 min 20 s`, `2 h 5 min`.
[[nodiscard]] std::string in_words(std::chrono::duration<double> time);

/// Returns `3499 tok/s`, `12.3 ktok/s`.
[[nodiscard]] std::string tokens_per_second(double rate);

inline constexpr std::size_t kProgressColumns = 100;

/// Returns `step 20/100  loss 3.2145  grad 0.92  12.3 ktok/s  MFU 41.2 %  1.20 GiB  0.412 s/step  ETA 33 s`. Drops
/// fields that others imply first if the line exceeds `columns`; step and losses stay.
[[nodiscard]] std::string progress_line(const StepMetrics& metrics, std::int64_t steps,
                                        std::size_t columns = kProgressColumns);

/// Returns `  sample: the king went to`, with blanks for control characters.
[[nodiscard]] std::string sample_line(const std::string& sample);

/// Steps that have a line in a log.
class LogPace {
 public:
  /// Without an interval, about 20 steps have a line, and at least one every kLogSeconds.
  LogPace(std::int64_t steps, SaveInterval every) : steps_(steps), every_(every) {}
  /// `seconds` have passed since the last line. The first and the last step always have a line.
  [[nodiscard]] bool shows(std::int64_t step, double seconds) const;
  /// Returns the seconds without a line until a running step is reported.
  [[nodiscard]] double patience() const { return every_.seconds > 0 ? every_.seconds : kLogSeconds; }

  static constexpr double kLogSeconds = 10;

 private:
  std::int64_t steps_;
  SaveInterval every_;
};

/// Returns `step 12/100  running for 20 s`.
[[nodiscard]] std::string running_line(std::int64_t step, std::int64_t steps, std::chrono::duration<double> time);

/// Shows steps on standard error. A terminal with escape sequences gets one rewritten line. Other outputs get the lines
/// of LogPace, plus one per validation or sample, each with the time of day. A thread reports long steps.
class Progress {
 public:
  /// `first_step` counts from 0.
  Progress(std::int64_t first_step, std::int64_t steps, SaveInterval every);
  void show(const StepMetrics& metrics);

 private:
  using Clock = std::chrono::steady_clock;
  void watch(const std::stop_token& stopped);
  void put(const std::string& line, bool stays);

  std::int64_t steps_;
  LogPace pace_;
  bool on_terminal_;
  std::mutex mutex_;
  std::condition_variable_any wakes_;
  std::int64_t running_;                    // from 1
  Clock::time_point began_ = Clock::now();  // of the current step
  Clock::time_point last_line_ = Clock::now();
  std::jthread watcher_;  // last member, because it uses the others
};

/// Returns `data: 3 files, 1.14 M tokens for training, 60 k for validation`.
[[nodiscard]] std::string data_line(const Corpus& corpus);

/// Also draws the schedule if it fits a page.
[[nodiscard]] std::string describe(const Job& job);

/// Seconds of a step by `simulate` with measured mean op times.
struct StepForecast {
  double step_seconds = 0;  ///< Includes the optimizer step
  double period = 0;        ///< Makespan of the ops; asynchronous: period of a step
  double bubble_ratio = 0;
  double turns = 0;  ///< Lower bound if ranks take turns on shared cores; 0 if each rank has a core
};
/// `cores` is the number of cores available to this process.
[[nodiscard]] StepForecast forecast(const Job& job, const RunSummary& run, int cores);

/// Lists the files of a finished run and next commands; empty without checkpoint or model.
[[nodiscard]] std::string ending(const Job& job);

/// Compares the measured step time with the forecast. `load` is the machine's load average. If it is far above the
/// cores and the times differ much, the text says that other programs may be the cause, and omits the difference. It
/// has a line about the memory of a GPU.
[[nodiscard]] std::string summary(const Job& job, const RunSummary& run, int cores, double load = 0);

}  // namespace chimera
