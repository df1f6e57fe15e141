#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "core/files.h"

// One training run as a shell command whose speed and losses are read from its metrics. The command may be `chimera
// train` or any other program that writes the same JSON lines, so that `chimera bench` can compare frameworks.

namespace chimera {

/// Results of a run. Medians exclude the first steps, which warm up memory and caches.
struct TrainingFigures {
  double tokens_per_second = 0;
  double step_seconds = 0;
  std::vector<double> losses;  // [step], of all steps
};

/// Runs `command` in a shell from construction on, and discards its standard output. The command must write JSON lines
/// with `step` (from 1), `loss`, `step_seconds` and `tokens_per_second` to the file named by the environment variable
/// CHIMERA_METRICS, which is `metrics`. The destructor waits for the end.
class TrainingRun {
 public:
  TrainingRun(std::string command, std::string metrics);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;
  ~TrainingRun();

  /// Waits for the end; call it once. Excludes the first `skipped` steps. Throws Error, with the command's messages, if
  /// the command fails, or if it writes at most `skipped` steps.
  [[nodiscard]] TrainingFigures wait(std::int64_t skipped);

 private:
  std::string command_;
  std::string metrics_;
  std::FILE* messages_ = nullptr;
};

}  // namespace chimera
