#pragma once
// The checkpoint that a run goes on from.

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

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

}  // namespace chimera
