#pragma once

// Writes a checkpoint of several ranks atomically. A checkpoint is a folder `step-N` with the files of all ranks and a
// manifest (manifest.h), which lists the files with their hashes. Each rank first writes its files into the unfinished
// checkpoint, the folder `step-N.tmp`. Then one rank writes the manifest and renames the folder, which commits it.
// `chimera train` (train/recover/checkpointer.h) and the Python package call these functions. checkpoint_folder.h reads
// the result.
//
//   open_unfinished() -> each rank: write_shard() (shard.h), mark_rank_written()
//                     -> one rank: commit(), or abandon() after a failure

#include <map>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace chimera {

/// Creates the folder of a run unless it exists, and waits until its name is on the disk. Throws CheckpointError if the
/// disk fails.
void make_run_folder(Disk& disk, const std::string& folder);

/// Creates `folder`, and in it the unfinished checkpoint of this step, unless they exist. Returns the path of the
/// unfinished checkpoint. Throws CheckpointError if the disk fails.
[[nodiscard]] std::string open_unfinished(Disk& disk, const std::string& folder, std::int64_t step);

/// Records in the unfinished checkpoint that the rank has written these files. They must already be synced to the disk.
/// Throws CheckpointError if the disk fails.
void mark_rank_written(Disk& disk, const std::string& unfinished, int rank, const std::vector<FileEntry>& files);

/// Content of a checkpoint besides tensors.
struct CheckpointContent {
  nlohmann::ordered_json run;                ///< description of the run, for the manifest (Manifest::run)
  std::map<std::string, std::string> files;  ///< further text files to write: name -> text
};

/// Commits a checkpoint after all `ranks` ranks have called mark_rank_written(). Does not wait for them. Adds the text
/// files of `content`, the index of the weights (model.safetensors.index.json, if there are several weight files)
/// and the manifest. Then replaces a checkpoint of the same step, and updates the file `latest` (checkpoint_folder.h).
/// Returns when everything is on the disk. Throws CheckpointError if a rank has not called mark_rank_written(), or if
/// the disk fails; checkpoints of other steps stay intact.
void commit(Disk& disk, const std::string& folder, std::int64_t step, int ranks, const CheckpointContent& content);

/// Removes the unfinished checkpoint of this step, for example after a failed save. Throws nothing: if it fails, the
/// next run removes the files that are left.
void abandon(Disk& disk, const std::string& folder, std::int64_t step);

}  // namespace chimera
