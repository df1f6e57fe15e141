#pragma once
// What a checkpoint consists of: the one file that a reader believes, once its own hash fits. docs/checkpoint_format.md
// describes it.

#include <nlohmann/json.hpp>

#include <cstdint>
#include <string>
#include <vector>

#include "checkpoint/block_hashes.h"

namespace chimera {

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int kCheckpointVersion = 1;
/// No manifest is longer: that of 10 TB of tensors has 95 MB.
inline constexpr std::uint64_t kMostManifestBytes = 100'000'000;

/// A file of a checkpoint, as it was written.
struct FileRecord {
  std::string name;  ///< without folder
  std::uint64_t bytes = 0;
  std::vector<Hash128> blocks;  ///< of each kHashBlockBytes
  friend bool operator==(const FileRecord&, const FileRecord&) = default;
};

struct Manifest {
  std::int64_t step = 0;       ///< optimizer steps that were done
  nlohmann::ordered_json run;  ///< what the run was: sections by name, which only their writer and reader know
  std::vector<FileRecord> files;
};

/// The text of manifest.json: sealed (checkpoint/sealed_json.h).
[[nodiscard]] std::string to_text(const Manifest& manifest);
/// Reads that text; `path` is what messages call it. Throws CheckpointError unless the seal fits, the version is
/// kCheckpointVersion, and every file has a plain name of its own, a size, and as many hashes as that has blocks.
[[nodiscard]] Manifest parse_manifest(const std::string& path, const std::string& text);

/// The files as JSON, and back: `path` and errors as in parse_manifest().
[[nodiscard]] nlohmann::ordered_json files_json(const std::vector<FileRecord>& files);
[[nodiscard]] std::vector<FileRecord> parse_files(const std::string& path, const nlohmann::ordered_json& files);

/// Reads the manifest of the checkpoint in that folder. Throws CheckpointError where it cannot.
[[nodiscard]] Manifest read_manifest(const std::string& folder);

/// A file that parse_manifest() or unsealed() reads, whole. Throws CheckpointError where it cannot be read, or has more
/// than kMostManifestBytes.
[[nodiscard]] std::string read_small_file(const std::string& path);

}  // namespace chimera
