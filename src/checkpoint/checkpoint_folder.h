#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

// The checkpoint that a run goes on from.

// The folder of a run's checkpoints: which there are, which of them stay.

namespace chimera {

/// A checkpoint whose manifest was read.
struct Checkpoint {
  std::string path;
  Manifest manifest;
};

/// Reads the manifest and, where `threads` is not 0, compares all bytes with their hashes, with so many threads. Throws
/// CheckpointError, naming the file and where it differs.
[[nodiscard]] Checkpoint open_checkpoint(const std::string& path, int threads,
                                         const std::function<void()>& progress = {});

/// The newest good checkpoint of a folder, and why newer ones were refused.
struct Newest {
  std::optional<Checkpoint> checkpoint;
  std::vector<std::string> refused;  ///< a line each
};
/// Looks at the checkpoints of `folder` from the newest on, until all bytes of one are as they were written.
[[nodiscard]] Newest newest_checkpoint(const std::string& folder, int threads,
                                       const std::function<void()>& progress = {});

/// The same for a path that is either a folder of checkpoints or one of them, which is then to be good. Throws
/// CheckpointError where there is none.
[[nodiscard]] Newest find_checkpoint(const std::string& path, int threads, const std::function<void()>& progress = {});

/// The folder of a model that a path names: where that is a folder of checkpoints the newest good one, and otherwise
/// itself. A checkpoint is compared with its hashes. Throws ConfigError where it is not good.
[[nodiscard]] std::string resolved_model_folder(const std::string& path, int threads);

inline constexpr const char* kLatestName = "latest";

/// `step-00000100`: at least 8 digits.
[[nodiscard]] std::string checkpoint_name(std::int64_t step);
/// The step that a folder of that name is of; none where it is no such name.
[[nodiscard]] std::optional<std::int64_t> step_of_name(const std::string& name);
/// Where a checkpoint is, and where it is while it is written.
[[nodiscard]] std::string checkpoint_path(const std::string& folder, std::int64_t step);
[[nodiscard]] std::string unfinished_path(const std::string& folder, std::int64_t step);

/// Steps of the checkpoints in the folder, ascending, by their names alone. Empty where there is no such folder.
[[nodiscard]] std::vector<std::int64_t> listed_steps(const std::string& folder);

/// Which checkpoints stay: the newest `last`, and those whose step is a multiple of `every`, if that is not 0.
struct Retention {
  std::int64_t last = 3;
  std::int64_t every = 0;
};
/// Those of `steps` (ascending) that do not stay.
[[nodiscard]] std::vector<std::int64_t> superfluous(const std::vector<std::int64_t>& steps, const Retention& retention);

/// Removes the checkpoints that do not stay, of those up to `newest`, which was committed before. Each disappears from
/// listed_steps() at once. Throws what the disk throws.
void remove_superfluous(Disk& disk, const std::string& folder, std::int64_t newest, const Retention& retention);

/// Removes what runs that were killed have left: every folder `*.tmp` that a checkpoint was written to or removed from.
/// To be called where nobody else writes. Throws what the disk throws.
void remove_leftovers(Disk& disk, const std::string& folder);

}  // namespace chimera
