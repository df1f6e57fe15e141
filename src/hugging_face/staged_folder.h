#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/file_descriptor.h"
#include "hugging_face/export_plan.h"

namespace chimera {

/// Throws ConfigError if `folder` exists and is not empty, cannot be created, or its file system has less than `bytes`
/// free.
void require_new_folder(const std::string& folder, std::uint64_t bytes);

/// A folder that appears complete or not at all. Until commit(), it is named `folder`.unfinished-N, and its writer
/// holds an flock on it, which the kernel releases if the writer is killed. Other processes may write files in it.
class StagedFolder {
 public:
  /// Creates it and its missing parents, after removing unlocked leftovers of killed writers. Throws ConfigError if
  /// `folder` exists and is not empty, or creation fails.
  explicit StagedFolder(std::string folder);
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  /// Removes it, unless it was committed.
  ~StagedFolder();

  /// N in the name, for other processes.
  [[nodiscard]] std::int64_t number() const { return number_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] static std::string path_of(const std::string& folder, std::int64_t number);

  /// Creates the plan's files, with headers and full size, and its index.
  void make_weights(const ExportPlan& plan) const;
  void write(const std::string& name, const std::string& text) const;
  /// Returns whether `source` exists.
  bool copy(const std::string& source, const std::string& name) const;

  /// Syncs all files to disk, then moves the folder to its final path. Throws ConfigError if this fails.
  void commit();

 private:
  std::string folder_;
  std::int64_t number_ = 0;
  std::string path_;
  FileDescriptor lock_;
  bool committed_ = false;
};

/// Writer for parts of a file of StagedFolder::make_weights(). Its functions throw ConfigError if they fail.
class PartWriter {
 public:
  explicit PartWriter(std::string path);
  /// Writes bytes, and syncs written data to disk at intervals.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Syncs the file to disk.
  void finish();

 private:
  void sync_data();

  std::string path_;
  FileDescriptor file_;
  std::uint64_t unsynced_bytes_ = 0;
};

}  // namespace chimera
