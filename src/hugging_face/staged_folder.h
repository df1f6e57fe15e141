#pragma once

// A folder that appears complete or not at all, for exports: files are written in a folder beside it,
// which commit() renames. The next export to the same place removes a folder that a killed export left behind.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "hugging_face/export_plan.h"

namespace chimera {

/// Throws ConfigError if `folder` is not empty, cannot be created, or has less than `bytes` free, or if an interrupted
/// export to it has left one of the inputs, which StagedFolder would remove.
void require_new_folder(const std::string& folder, std::uint64_t bytes, const std::vector<std::string>& inputs = {});

/// A folder that appears complete or not at all. Until commit(), it is named `folder`.unfinished-N, and its writer
/// holds an flock on it. Other processes may write files in it.
class StagedFolder {
 public:
  /// Removes unlocked leftovers, and creates missing parents. Throws ConfigError if `folder` is not empty, or creation
  /// fails.
  explicit StagedFolder(std::string folder);
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  /// Removes the folder, unless it was committed.
  ~StagedFolder();

  /// N in the name, for other processes.
  [[nodiscard]] std::int64_t number() const { return number_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] static std::string path_of(const std::string& folder, std::int64_t number);

  /// Creates the files, with headers and full size, and the index.
  void make_weights(const ExportPlan& plan) const;
  void write(const std::string& name, const std::string& text) const;
  /// Returns whether `source` exists.
  bool copy(const std::string& source, const std::string& name) const;

  /// Syncs all files, then moves the folder. Throws ConfigError.
  void commit();

 private:
  std::string folder_;
  std::int64_t number_ = 0;
  std::string path_;
  FileDescriptor lock_;
  bool committed_ = false;
};

/// Writes parts of a file of StagedFolder::make_weights(). Throws ConfigError.
class PartWriter {
 public:
  explicit PartWriter(std::string path);
  /// Syncs written data at intervals.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  void finish();

 private:
  std::string path_;
  FileDescriptor file_;
  std::uint64_t unsynced_bytes_ = 0;
};

}  // namespace chimera
