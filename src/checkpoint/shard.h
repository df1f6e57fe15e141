#pragma once
// The files of tensors of a checkpoint, as one rank writes them.

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "safetensors/safetensors_layout.h"

namespace chimera {

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
