#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace chimera {

struct Checkpoint {
  std::string path;
  Manifest manifest;
};

/// Reads the manifest. If `threads` > 0, also verifies all hashes with that many threads. Throws CheckpointError,
/// naming file and position.
[[nodiscard]] Checkpoint open_checkpoint(const std::string& path, int threads,
                                         const std::function<void()>& progress = {});

/// The newest valid checkpoint of a folder, and why newer ones were rejected.
struct Newest {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> refused;  ///< one line each
};
/// Finds the newest valid checkpoint.
[[nodiscard]] Newest newest_checkpoint(const std::string& folder, int threads,
                                       const std::function<void()>& progress = {});

/// Verifies `path` if it is a checkpoint, or else finds the newest valid checkpoint in it. Throws CheckpointError if
/// there is none.
[[nodiscard]] Newest find_checkpoint(const std::string& path, int threads, const std::function<void()>& progress = {});

/// Returns the folder of a model: `path` or, for a folder of checkpoints, the newest valid checkpoint. Verifies
/// checkpoints, and throws ConfigError if none is valid.
[[nodiscard]] std::string resolved_model_folder(const std::string& path, int threads);

inline constexpr const char* kLatestName = "latest";

/// Returns `step-00000100`; at least 8 digits.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// Returns the step of such a name, if it is one.
[[nodiscard]] std::optional<std::int64_t> step_of_name(const std::string& name);
/// Return the path of a checkpoint, and its path before the commit.
[[nodiscard]] std::string checkpoint_path(const std::string& folder, std::int64_t step);
[[nodiscard]] std::string unfinished_path(const std::string& folder, std::int64_t step);

/// Returns the steps of the folder's checkpoints by name, ascending.
[[nodiscard]] std::vector<std::int64_t> listed_steps(const std::string& folder);

/// Checkpoints to keep: the newest `last`, and steps that are multiples of `every`, unless 0.
struct Retention {
  std::int64_t last = 3;
  std::int64_t every = 0;
};
[[nodiscard]] std::vector<std::int64_t> expired_steps(const std::vector<std::int64_t>& steps,
                                                      const Retention& retention);

/// Removes checkpoints up to `newest`, the last committed step, except those to keep. Each disappears atomically from
/// listed_steps(). Throws as `disk` does.
void remove_superfluous(Disk& disk, const std::string& folder, std::int64_t newest, const Retention& retention);

/// Removes the unfinished checkpoints (`*.tmp`) of killed runs. No other process may write in the folder. Throws as
/// `disk` does.
void remove_leftovers(Disk& disk, const std::string& folder);

}  // namespace chimera
