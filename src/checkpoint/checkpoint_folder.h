#pragma once

// The folder of a run's checkpoints, and the choice among them. Each checkpoint is a folder named by its step, such as
// `step-00000100`; the name of an unfinished one ends in `.tmp`. Readers take the newest checkpoint whose files match
// their hashes, and list the newer ones that they rejected. Resumed runs, recovery, `chimera export` and `chimera
// checkpoint` find their checkpoints here.
//
//   run/
//     latest                      the name of the newest checkpoint, as text
//     step-00000100/
//       manifest.json             files, sizes and hashes; a checkpoint with a manifest is complete
//       model-00001-of-00004.safetensors, optimizer-00001-of-00004.safetensors, ...
//     step-00000200.tmp/          unfinished: the next run removes it

#include <functional>
#include <optional>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace chimera {

/// A complete checkpoint.
struct Checkpoint {
  std::string path;
  Manifest manifest;
};

/// Reads the manifest of the checkpoint `path`. If `threads` > 0, also verifies the hashes of all files with this many
/// threads. Each thread calls `progress` after each block of 4 MiB; several may call it at once. If `threads` is 0,
/// verifies no hashes. Throws CheckpointError for an invalid checkpoint. `threads` and `progress` have the same meaning
/// below.
[[nodiscard]] Checkpoint open_checkpoint(const std::string& path, int threads,
                                         const std::function<void()>& progress = {});

/// Result of the search for a valid checkpoint.
struct NewestCheckpoint {
  std::optional<Checkpoint> checkpoint;  ///< nothing if no checkpoint is valid
  std::vector<std::string> rejected;     ///< reasons why newer checkpoints were rejected, one line each
};
/// Finds the newest valid checkpoint in `folder`, which may contain links to checkpoints. Returns no checkpoint if the
/// folder is missing or all are invalid. Throws CheckpointError if the folder cannot be read.
[[nodiscard]] NewestCheckpoint newest_checkpoint(const std::string& folder, int threads,
                                                 const std::function<void()>& progress = {});

/// Prints a line on standard error for each rejected checkpoint and, if there are any, the path of the older checkpoint
/// that is used instead.
void report_rejected(const NewestCheckpoint& newest);

/// Verifies `path` if it is a checkpoint, or else finds the newest valid checkpoint in it. `path` may also be the
/// manifest of a checkpoint, or the file `latest`. Throws CheckpointError if there is no valid checkpoint.
[[nodiscard]] NewestCheckpoint find_checkpoint(const std::string& path, int threads,
                                               const std::function<void()>& progress = {});

/// Returns the path of the checkpoint of find_checkpoint() if `path` is or contains a checkpoint, else `path` itself,
/// such as the folder of a Hugging Face model. Reports newer checkpoints that were rejected. Throws ConfigError if no
/// checkpoint is valid.
[[nodiscard]] std::string resolve_model_folder(const std::string& path, int threads);

/// Calls `use` with the folder of resolve_model_folder(). If a running job removes this checkpoint meanwhile, so that
/// `use` throws Error, calls it again with a newer one.
void use_model_folder(const std::string& path, int threads, const std::function<void(const std::string&)>& use);

/// Name of the file with the name of the newest checkpoint.
inline constexpr const char* kLatestName = "latest";

/// Returns `step-00000100`, with at least 8 digits.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// Returns the step of a name such as `step-00000100`, or nothing for other names.
[[nodiscard]] std::optional<std::int64_t> step_of_name(const std::string& name);
/// Returns the path of a complete checkpoint.
[[nodiscard]] std::string checkpoint_path(const std::string& folder, std::int64_t step);
/// Returns the path of a checkpoint while it is written.
[[nodiscard]] std::string unfinished_path(const std::string& folder, std::int64_t step);

/// Returns the steps in the names of checkpoints and of links to checkpoints, ascending; empty if the folder is
/// missing. Throws CheckpointError if it cannot be read.
[[nodiscard]] std::vector<std::int64_t> list_steps(const std::string& folder);

/// Checkpoints to keep: the newest `last`, and the first one at or after each multiple of `every` (0: no others).
struct Retention {
  std::int64_t last = 3;
  std::int64_t every = 0;
  friend bool operator==(const Retention&, const Retention&) = default;
};
/// Returns the elements of `steps` (ascending) whose checkpoints are to be removed: with `last` 1 and `every` 100, the
/// steps 50 and 180 of 50, 120, 180, 210 and 250.
[[nodiscard]] std::vector<std::int64_t> find_expired_steps(const std::vector<std::int64_t>& steps,
                                                           const Retention& retention);

/// Removes the checkpoints up to step `newest`, the last complete one, that find_expired_steps() returns. Keeps links
/// to checkpoints. Each checkpoint disappears from list_steps() atomically. Throws the errors of `disk`.
void remove_expired(Disk& disk, const std::string& folder, std::int64_t newest, const Retention& retention);

/// Removes unfinished checkpoints (`step-N.tmp`), but no links. No other process may write in the folder. Throws the
/// errors of `disk`.
void remove_unfinished(Disk& disk, const std::string& folder);

}  // namespace chimera
