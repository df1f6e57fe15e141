#pragma once
// A training run as a program under way: any command that writes one JSON object a step, as `chimera train --metrics`.

#include <cstdio>
#include <string>
#include <vector>

#include "core/files.h"

namespace chimera {

/// What a run wrote of its steps. Medians leave the first steps out, which touch memory and fill caches.
struct TrainingFigures {
  double tokens_per_second = 0;
  double step_seconds = 0;
  std::vector<double> losses;  // of every step
};

/// `text` as one word of a shell line.
[[nodiscard]] std::string shell_word(const std::string& text);

/// Runs `command` in a shell from construction on, with CHIMERA_METRICS naming the file that it writes: `step` (from
/// 1), `loss`, `step_seconds` and `tokens_per_second` on each line. Its standard output is dropped.
class TrainingRun {
 public:
  TrainingRun(std::string command, std::string metrics);
  TrainingRun(const TrainingRun&) = delete;
  TrainingRun& operator=(const TrainingRun&) = delete;
  ~TrainingRun();

  /// Waits for the end. Throws Error, with what the command said, where it failed or wrote no more than `skipped`
  /// steps.
  [[nodiscard]] TrainingFigures wait(std::int64_t skipped);

 private:
  std::string command_;
  std::string metrics_;
  std::FILE* messages_ = nullptr;
};

}  // namespace chimera
