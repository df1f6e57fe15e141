#pragma once
// When a run saves checkpoints, and which of them it keeps: --checkpoint and the flags beside it.

#include <cstdint>
#include <string>

#include "checkpoint/checkpoint_folder.h"

namespace chimera {

/// How often checkpoints are saved: after so many steps, or after so much time.
struct SaveInterval {
  std::int64_t steps = 0;  ///< 0: by time
  double seconds = 0;      ///< 0: by steps
  friend bool operator==(const SaveInterval&, const SaveInterval&) = default;
};

/// `100` (steps), `30s`, `10min` or `2h`. Throws ConfigError for anything else, and for 0.
[[nodiscard]] SaveInterval parse_save_interval(const std::string& flag, const std::string& text);

/// Deviations: `5` or `5sigma`. Throws ConfigError for anything else, and for what is not above 0.
[[nodiscard]] double parse_deviations(const std::string& flag, const std::string& text);

struct CheckpointOptions {
  std::string folder;  ///< empty: none are saved
  SaveInterval every{.steps = 0, .seconds = 600};
  Retention keep;
};

/// Where a run begins.
struct ResumeOptions {
  std::string from;  ///< `auto`: the newest checkpoint of CheckpointOptions::folder, if there is one; a folder of
                     ///< checkpoints, or one of them; empty or `none`: with the first step
  bool other_data = false;  ///< goes on with other data or another mini-batch too
  bool is_checked = false;  ///< by the launcher: `from` is one checkpoint, whose bytes are good
};

}  // namespace chimera
