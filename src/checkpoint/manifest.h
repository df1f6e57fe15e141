#pragma once

// The manifest of a checkpoint: a JSON object with a description of the run and every file's size and hashes. It is
// written after all other files, so a folder with a manifest is a complete checkpoint. The last member of the object is
// a hash of the text before it, called the seal; with it, a reader detects a truncated or edited manifest. commit.h
// writes the manifest; checkpoint_folder.h and verify.h read it. See docs/checkpoints.md for the format.

#include <nlohmann/json.hpp>

#include "checkpoint/block_hashes.h"
#include "checkpoint/disk.h"

namespace chimera {

/// Returns the text of a non-empty object with the seal as last member: `xxh3_128`, the hash of all bytes before the
/// comma in front of this member.
[[nodiscard]] std::string add_seal(const nlohmann::ordered_json& object);

/// Does the same with the text of an object that lacks its last line end and closing brace.
[[nodiscard]] std::string add_seal(std::string open_object);

/// Returns the object without the seal. `path` is for messages. Throws CheckpointError if the seal is missing or wrong,
/// or if the text is no UTF-8 JSON object of at most 16 levels.
[[nodiscard]] nlohmann::ordered_json remove_seal(const std::string& path, const std::string& text);

inline constexpr const char* kManifestName = "manifest.json";
inline constexpr int kCheckpointVersion = 1;
/// Maximum size of a manifest. The manifest of 10 TB of tensors has 95 MB.
inline constexpr std::uint64_t kMaxManifestBytes = 100'000'000;

/// A file of the checkpoint.
struct FileEntry {
  std::string name;  ///< without folder
  std::uint64_t bytes = 0;
  std::vector<std::string> blocks;  ///< hash128() of each block of kHashBlockBytes
  friend bool operator==(const FileEntry&, const FileEntry&) = default;
};

/// Content of a manifest.
struct Manifest {
  std::int64_t step = 0;       ///< completed optimizer steps
  nlohmann::ordered_json run;  ///< description of the run; `chimera train` and the Python package choose its members
  std::vector<FileEntry> files;
};

/// Returns the text of manifest.json, with the seal.
[[nodiscard]] std::string to_text(const Manifest& manifest);
/// Parses the text of a manifest. `path` is for messages. Throws CheckpointError if the seal or the version is wrong,
/// or if a file lacks a unique name without slash or leading dot, a size, or a hash per block.
[[nodiscard]] Manifest parse_manifest(const std::string& path, const std::string& text);

/// Converts Manifest::files, or the files of one rank (mark_rank_written() in commit.h), to JSON.
[[nodiscard]] nlohmann::ordered_json files_json(const std::vector<FileEntry>& files);
/// Converts the result of files_json(), the member `files` of `object`, back. `path` is for messages. Throws
/// CheckpointError, as parse_manifest() does, for an invalid file.
[[nodiscard]] std::vector<FileEntry> parse_files(const std::string& path, const nlohmann::ordered_json& object);

/// Reads and parses manifest.json in `folder`. Throws CheckpointError if the file is unreadable or larger than
/// kMaxManifestBytes, or if its content is invalid (parse_manifest()).
[[nodiscard]] Manifest read_manifest(const std::string& folder);

/// Returns the bytes of a file. Throws CheckpointError if the file is unreadable or has more than kMaxManifestBytes.
[[nodiscard]] std::string read_small_file(const std::string& path);

}  // namespace chimera
