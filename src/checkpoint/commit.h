#pragma once

// Commits checkpoints of several ranks atomically. Each rank writes its part into `step-N.tmp`; then one rank writes
// the manifest and renames the folder. A checkpoint with a manifest is complete. `chimera train`
// (train/recover/checkpointer.h) and the Python package call these functions. checkpoint_folder.h reads the result.
//
//   open_unfinished() -> each rank: write_shard() (shard.h), finish_part()
//                     -> one rank: commit(), or abandon() after a failure

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace chimera {

/// Creates `folder` and the unfinished checkpoint in it, unless they exist. Returns the latter's path. Throws
/// CheckpointError.
[[nodiscard]] std::string open_unfinished(Disk& disk, const std::string& folder, std::int64_t step);

/// Records the files of a rank, which must be on the disk. Throws CheckpointError.
void finish_part(Disk& disk, const std::string& unfinished, int rank, const std::vector<FileEntry>& files);

/// Content of a checkpoint besides tensors.
struct Description {
  nlohmann::ordered_json run;                ///< Manifest::run
  std::map<std::string, std::string> files;  ///< texts by file name
};

/// Commits a checkpoint after all `ranks` have finished their parts: adds description, weight index and manifest,
/// replaces a checkpoint of the same step, and updates the file `latest`. Returns when everything is on the disk.
/// Throws CheckpointError; other checkpoints stay intact.
void commit(Disk& disk, const std::string& folder, std::int64_t step, int ranks, const Description& description);

/// Removes the unfinished checkpoint of this step, for example after a failed save. Ignores errors: the next run
/// removes the files that are left.
void abandon(Disk& disk, const std::string& folder, std::int64_t step);

}  // namespace chimera
