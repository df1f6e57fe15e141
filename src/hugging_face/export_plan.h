#pragma once
// Which tensors a folder will have, in which files and where in them: known to all who write it before anybody writes.

#include <cstdint>
#include <string>
#include <vector>

#include "safetensors/safetensors_layout.h"

namespace chimera {

/// A file of weights to be written.
struct ExportFile {
  std::string name;  ///< without folder
  SafetensorsLayout layout;
};

/// The weights of a folder to be written.
struct ExportPlan {
  std::vector<ExportFile> files;
  std::string index;  ///< the text of model.safetensors.index.json; empty where one file has everything
};

/// The default of save_pretrained.
inline constexpr std::uint64_t kDefaultShardBytes = 5'000'000'000;

/// Deals the tensors (name, type and shape), in their order, to files of at most `shard_bytes` of elements each; a
/// larger tensor gets one of its own. Within a file those of wider elements come first.
[[nodiscard]] ExportPlan plan_export(std::vector<TensorEntry> tensors, std::uint64_t shard_bytes);

/// A size such as `5GB`, `300MB`, `1GiB` or `1000` (bytes). Throws ConfigError for anything else, and for 0.
[[nodiscard]] std::uint64_t parse_bytes(const std::string& flag, const std::string& text);

}  // namespace chimera
