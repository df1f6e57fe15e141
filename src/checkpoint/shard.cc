#include "checkpoint/shard.h"

#include <fmt/format.h>
#include <algorithm>
#include <set>

#include "core/mapped.h"

namespace chimera {

CheckpointTensors::CheckpointTensors(const std::string& checkpoint, const Manifest& manifest) {
  try {
    for (const FileEntry& file : manifest.files)
      if (file.name.ends_with(".safetensors")) files_.emplace_back(checkpoint + "/" + file.name);
  } catch (const ConfigError& error) {
    throw CheckpointError(error.what());
  }
  std::set<std::string> seen;
  for (const SafetensorsFile& file : files_) {
    for (const std::string& name : file.tensors().names())
      if (!seen.insert(name).second) throw CheckpointError(fmt::format("{}: has tensor {} twice", checkpoint, name));
  }
}

namespace {

/// Limit of unsynced bytes, so that other users of the disk do not wait for a whole shard.
constexpr std::uint64_t kMaxUnsynced = std::uint64_t{64} << 20;

}  // namespace

std::string shard_name(ShardKind kind, int rank, int ranks) {
  const char* stem = kind == ShardKind::Weights ? "model" : "optimizer";
  if (ranks == 1) return fmt::format("{}.safetensors", stem);
  return fmt::format("{}-{:05}-of-{:05}.safetensors", stem, rank + 1, ranks);
}

FileEntry write_shard(Disk& disk, const std::string& folder, const std::string& name,
                      const std::vector<ShardTensor>& tensors) {
  const SafetensorsLayout layout = lay_out(mapped<TensorEntry>(tensors, &ShardTensor::entry), {{"format", "pt"}});
  OpenFile file(disk, folder + "/" + name);
  FileEntry written{.name = name, .bytes = 0, .blocks = {}};
  std::uint64_t synced = 0;
  BlockHasher hasher;
  const auto write = [&](std::span<const std::byte> bytes) {
    while (!bytes.empty()) {
      // In parts: the hash reads a part from memory, and the write finds it in the cache.
      const auto part = bytes.first(std::min<std::size_t>(bytes.size(), kHashBlockBytes));
      hasher.add(part);
      file.write(part);
      written.bytes += part.size();
      if (written.bytes - synced >= kMaxUnsynced) {
        file.sync();
        synced = written.bytes;
      }
      bytes = bytes.subspan(part.size());
    }
  };
  write(std::as_bytes(std::span(layout.head)));
  for (const ShardTensor& tensor : tensors) write(tensor.bytes);
  file.sync();
  written.blocks = hasher.finish();
  return written;
}

}  // namespace chimera
