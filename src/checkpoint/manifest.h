#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/block_hashes.h"
#include "checkpoint/disk.h"
#include "core/error.h"

// What is wrong with a checkpoint.

// A file that is being written to a Disk.

// A JSON object that carries the hash of its own text: no byte of it can change unnoticed.

// What a checkpoint consists of: the one file that a reader believes, once its own hash fits. docs/checkpoint_format.md
// describes it.

namespace chimera {

/// A checkpoint that cannot be written, or whose bytes are not those that were written; names the file, and the field
/// or the bytes.
class CheckpointError : public Error {
 public:
  using Error::Error;
};

/// Owns the descriptor. The disk is borrowed. Throws what the disk throws.
class OpenFile {
 public:
  OpenFile(Disk& disk, std::string path) : disk_(disk), path_(std::move(path)), file_(disk.create(path_)) {}
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  ~OpenFile() { disk_.close(file_); }

  /// Writes all of the bytes, behind what was written.
  void write(std::span<const std::byte> bytes) {
    while (!bytes.empty()) bytes = bytes.subspan(disk_.write(file_, bytes, path_));
  }
  void sync() { disk_.sync(file_, path_); }

 private:
  Disk& disk_;
  std::string path_;
  int file_;
};

/// The object as text, its last member `xxh3_128`: the hash of all bytes before the comma in front of it. The object,
/// which is not empty, has no such member.
[[nodiscard]] std::string sealed(const nlohmann::ordered_json& object);

/// The text of an object, which ends before the line end in front of its last brace, with the seal and the brace. Of
/// another text the result is sealed, but no object.
[[nodiscard]] std::string sealed(std::string open_object);

/// The object of a text that sealed() made, without the seal. `path` is what messages call the text. Throws
/// CheckpointError where the seal is missing or does not fit, where the text is no JSON object in UTF-8, or where it is
/// nested more than 16 deep.
[[nodiscard]] nlohmann::ordered_json unsealed(const std::string& path, const std::string& text);

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
