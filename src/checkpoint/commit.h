#pragma once
// How a checkpoint comes to be: every rank writes its part into `step-N.tmp`; when all have, one of them writes the
// manifest and gives the folder its name. Whatever happens in between, the checkpoints before stay as they are, and one
// with a manifest is whole.

#include <nlohmann/json.hpp>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"

namespace chimera {

/// Makes the folder that a checkpoint of `step` is written to, and `folder` itself, where they are missing. Returns its
/// path. Any rank may be the first.
[[nodiscard]] std::string open_unfinished(Disk& disk, const std::string& folder, std::int64_t step);

/// Notes in the unfinished checkpoint that all files of a rank have reached the disk, and their hashes.
void finish_part(Disk& disk, const std::string& unfinished, int rank, const std::vector<FileRecord>& files);

/// What a checkpoint has besides tensors.
struct Description {
  nlohmann::ordered_json run;                ///< Manifest::run
  std::map<std::string, std::string> files;  ///< texts by name, such as config.json
};

/// Once all `ranks` have finished their parts: adds the description, the index of the weights and the manifest, and
/// moves the checkpoint to its place, over one of the same step if there is one. Then `latest` says its name. On return
/// the disk has all of it. Throws CheckpointError; a checkpoint of that step may then be there or not, but no other one
/// was touched.
void commit(Disk& disk, const std::string& folder, std::int64_t step, int ranks, const Description& description);

/// Removes an unfinished checkpoint that will not be finished; keeps quiet where it cannot.
void abandon(Disk& disk, const std::string& folder, std::int64_t step);

}  // namespace chimera
