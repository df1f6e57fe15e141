#pragma once

// Plans the files of an exported model: which tensor goes to which file, and at which byte. A model may be divided over
// several processes (ranks). The plan needs only names and shapes, so all ranks make the same plan, and then write
// their own tensors into the files at the same time (PartWriter in staged_folder.h).

#include "safetensors/safetensors_file.h"

namespace chimera {

/// A safetensors file of the export.
struct ExportFile {
  std::string name;          ///< without folder
  SafetensorsLayout layout;  ///< its header and the position of each tensor
};

/// All files of weights.
struct ExportPlan {
  std::vector<ExportFile> files;
  std::string index;  ///< text of model.safetensors.index.json; empty for a single file
};

/// Maximum size of a file by default, as in save_pretrained() of transformers.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

/// Distributes tensors (name, type, shape) in order to files with at most `shard_bytes` bytes of tensors; a larger
/// tensor gets its own file. Within a file, wider elements come first. Throws ConfigError if the header of a file is
/// longer than readers accept (lay_out()).
[[nodiscard]] ExportPlan plan_export(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes);

/// Parses `5GB`, `300MB`, `1GiB` or `1000` (bytes). Throws ConfigError, which names `flag`, for anything else and 0.
[[nodiscard]] std::uint64_t parse_bytes(const std::string& flag, const std::string& text);

}  // namespace chimera
