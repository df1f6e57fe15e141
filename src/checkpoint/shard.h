#pragma once

// The safetensors files (shards) of a checkpoint. Each rank writes one shard of weights and one of optimizer state.
// write_shard() also computes the hashes for the manifest, the checkpoint's list of files (manifest.h).
// CheckpointTensors finds each tensor by its name in the shards of all ranks, so a run with another number of ranks or
// stages can load the checkpoint.

#include "checkpoint/disk.h"
#include "checkpoint/manifest.h"
#include "safetensors/safetensors_file.h"
#include "safetensors/weight_files.h"

namespace chimera {

/// All tensors of a checkpoint, found by name (find() of the base class). Any number of threads may read.
class CheckpointTensors : public TensorFiles {
 public:
  /// Does not verify the hashes of the manifest. Throws CheckpointError if a file is unreadable or invalid, or if two
  /// contain the same tensor name.
  CheckpointTensors(const std::string& checkpoint, const Manifest& manifest);
};

/// Content of a shard.
enum class ShardKind : std::uint8_t { Weights, OptimizerState };

/// Returns `model-00002-of-00004.safetensors` or `optimizer-...` for rank 1 of 4; for a single rank `model.safetensors`
/// and `optimizer.safetensors`.
[[nodiscard]] std::string shard_name(ShardKind kind, int rank, int ranks);

/// A tensor to write: row-major, little-endian. Borrows `bytes`.
struct ShardTensor {
  TensorEntry entry;  ///< name, type, shape
  std::span<const std::byte> bytes;
};

/// Writes and syncs the safetensors file `name` (shard_name()) in `folder`. Returns its name, size and hashes for the
/// manifest. Throws CheckpointError if the disk fails.
[[nodiscard]] FileEntry write_shard(Disk& disk, const std::string& folder, const std::string& name,
                                    const std::vector<ShardTensor>& tensors);

}  // namespace chimera
