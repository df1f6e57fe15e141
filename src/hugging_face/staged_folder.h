#pragma once
// A folder that appears whole or not at all, also where several processes write it.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/file_descriptor.h"
#include "hugging_face/export_plan.h"

namespace chimera {

/// Throws ConfigError where `folder` is there already and is no empty folder, where it cannot be made beside its place,
/// or where its file system has less than `bytes` left.
void require_new_folder(const std::string& folder, std::uint64_t bytes);

/// The folder in the making, under a name of its own beside its place: `folder`.unfinished-N. While it is, its writer
/// holds a lock on it (flock), which the kernel takes from one that is killed.
class StagedFolder {
 public:
  /// Makes it, after removing those of the same place whose writers are gone: those that nobody holds. Throws
  /// ConfigError as require_new_folder(), or where it cannot be made.
  explicit StagedFolder(std::string folder);
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  /// Removes it with all that is in it, unless it was committed.
  ~StagedFolder();

  /// N, by which others find it.
  [[nodiscard]] std::int64_t number() const { return number_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Where the folder with that number is.
  [[nodiscard]] static std::string path_of(const std::string& folder, std::int64_t number);

  /// Makes the files of the plan, with their headers and in their full size, and its index.
  void make_weights(const ExportPlan& plan) const;
  /// Writes a file.
  void write(const std::string& name, const std::string& text) const;
  /// Copies the file `source`, if it is there. Returns whether it is.
  bool copy(const std::string& source, const std::string& name) const;

  /// Moves it to its place, after all that is in it has reached the disk. Throws ConfigError where it cannot.
  void commit();

 private:
  std::string folder_;
  std::int64_t number_ = 0;
  std::string path_;
  FileDescriptor lock_;
  bool committed_ = false;
};

/// Writes parts of a file that StagedFolder::make_weights() has made.
class PartWriter {
 public:
  /// Throws ConfigError where the file cannot be opened.
  explicit PartWriter(std::string path);
  /// Writes `bytes` at `offset`; now and then waits until the disk has what was written. Throws ConfigError where it
  /// cannot.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Waits until all of it has reached the disk. Throws ConfigError where it does not.
  void finish();

 private:
  void sync_data();

  std::string path_;
  FileDescriptor file_;
  std::uint64_t unsynced_bytes_ = 0;
};

}  // namespace chimera
