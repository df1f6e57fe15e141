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

/// Reads the manifest of the checkpoint in folder `path`. If `threads` > 0, also verifies all hashes with that many
/// threads. Throws CheckpointError, naming file and position. `threads` and `progress` have the same meaning below.
[[nodiscard]] Checkpoint open_checkpoint(const std::string& path, int threads,
                                         const std::function<void()>& progress = {});

/// Newest valid checkpoint of a folder, and the reasons why newer ones were rejected.
struct Newest {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> refused;  ///< one line for each newer name of a checkpoint that is none or invalid
};
/// Finds the newest valid checkpoint in `folder`, perhaps behind a link; does not throw if there is none.
[[nodiscard]] Newest newest_checkpoint(const std::string& folder, int threads,
                                       const std::function<void()>& progress = {});

/// Verifies `path` if it is a checkpoint, or else finds the newest valid checkpoint in it. Throws CheckpointError if
/// that checkpoint is invalid, or if there is none.
[[nodiscard]] Newest find_checkpoint(const std::string& path, int threads, const std::function<void()>& progress = {});

/// Returns the folder of a model. If `path` is a checkpoint, verifies it; if `path` contains checkpoints, returns the
/// newest valid checkpoint; else returns `path`. Throws ConfigError if no checkpoint is valid.
[[nodiscard]] std::string resolved_model_folder(const std::string& path, int threads);

inline constexpr const char* kLatestName = "latest";

/// Returns a name such as `step-00000100`, with at least 8 digits.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// Returns the step in a name of a checkpoint; nothing for other names.
[[nodiscard]] std::optional<std::int64_t> step_of_name(const std::string& name);
/// Return the path of a checkpoint after and before its commit.
[[nodiscard]] std::string checkpoint_path(const std::string& folder, std::int64_t step);
[[nodiscard]] std::string unfinished_path(const std::string& folder, std::int64_t step);

/// Returns the steps in the names of the folder's checkpoints and of links to checkpoints, ascending. Throws
/// CheckpointError if the folder cannot be read.
[[nodiscard]] std::vector<std::int64_t> listed_steps(const std::string& folder);

/// Checkpoints to keep: the newest `last`, and the steps that are multiples of `every` (0: none)
struct Retention {
  std::int64_t last = 3;
  std::int64_t every = 0;
  friend bool operator==(const Retention&, const Retention&) = default;
};
[[nodiscard]] std::vector<std::int64_t> expired_steps(const std::vector<std::int64_t>& steps,
                                                      const Retention& retention);

/// Removes checkpoints up to step `newest`, the last committed step, except those to keep and links. Each disappears
/// from listed_steps() atomically. Throws the errors of `disk`.
void remove_superfluous(Disk& disk, const std::string& folder, std::int64_t newest, const Retention& retention);

/// Removes the unfinished checkpoints (`*.tmp`) of killed runs. No other process may write in the folder. Throws the
/// errors of `disk`.
void remove_leftovers(Disk& disk, const std::string& folder);

}  // namespace chimera
