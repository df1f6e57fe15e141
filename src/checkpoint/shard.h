#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "safetensors/safetensors_layout.h"
#include "safetensors/weight_files.h"

// The tensors of a checkpoint, by name, whichever file they are in.

// The files of tensors of a checkpoint, as one rank writes them.

namespace chimera {

/// All tensors of a checkpoint, open for reading. Headers are in memory, elements are not. Any number of threads may
/// read.
class CheckpointTensors {
 public:
  /// Opens the safetensors files that the manifest names. Throws CheckpointError where one cannot be read or is
  /// unsound, or where two have a tensor of the same name.
  CheckpointTensors(const std::string& checkpoint, const Manifest& manifest);

  [[nodiscard]] std::optional<WeightFiles::Found> find(std::string_view tensor) const;
  /// The names of all tensors, ascending.
  [[nodiscard]] std::vector<std::string> names() const;

 private:
  std::vector<SafetensorsFile> files_;
};

/// What a file of tensors is for.
enum class ShardKind : std::uint8_t { Weights, OptimizerState };

/// The name of the file that a rank writes: `model-00002-of-00004.safetensors` or `optimizer-...` of rank 1 of 4; with
/// one rank `model.safetensors` and `optimizer.safetensors`.
[[nodiscard]] std::string shard_name(ShardKind kind, int rank, int ranks);

/// A tensor to be written: row-major, little endian.
struct ShardTensor {
  TensorEntry entry;  ///< name, type, shape
  std::span<const std::byte> bytes;
};

/// Writes a safetensors file in `folder` and waits until the disk has it. Returns what the manifest says of it.
/// `progress` is called every few megabytes. Throws what the disk throws.
[[nodiscard]] FileRecord write_shard(Disk& disk, const std::string& folder, const std::string& name,
                                     const std::vector<ShardTensor>& tensors, const std::function<void()>& progress);

}  // namespace chimera
