#pragma once

// A folder that appears complete or not at all, for exports of models. Files are written into a temporary folder next
// to it, which commit() renames. If an export is killed, the next export to the same place removes its temporary
// folder.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/file_descriptor.h"
#include "hugging_face/export_plan.h"

namespace chimera {

/// Checks an export before it reads any weights. Throws ConfigError if `folder` is not empty or cannot be created, or
/// if its disk has less than `bytes` free. Also throws if one of the export's own `inputs` is in the temporary folder
/// of an interrupted export to `folder`, which StagedFolder would remove.
void require_new_folder(const std::string& folder, std::uint64_t bytes, const std::vector<std::string>& inputs = {});

/// Creates `folder` and holds it with an flock, so that no other run takes the name while this one trains.
class FolderHold {
 public:
  /// Throws ConfigError if the folder is not empty or cannot be created, or if another run holds it.
  explicit FolderHold(const std::string& folder);
  FolderHold(const FolderHold&) = delete;
  FolderHold& operator=(const FolderHold&) = delete;
  /// Removes the folder if it is new and still empty.
  ~FolderHold();

 private:
  std::string made_;  // Empty: the folder existed
  FileDescriptor lock_;
};

/// The folder while it is written. Until commit(), its name is `folder`.unfinished-N, and the process with this object
/// holds an flock on it. Other rank processes may write files in it; they find it by number() and path_of().
class StagedFolder {
 public:
  /// Creates the temporary folder and missing parents. Removes temporary folders of exports that no longer run. Throws
  /// ConfigError if `folder` is not empty, or creation fails.
  explicit StagedFolder(std::string folder);
  StagedFolder(const StagedFolder&) = delete;
  StagedFolder& operator=(const StagedFolder&) = delete;
  /// Removes the folder, unless it was committed.
  ~StagedFolder();

  /// Returns N in the temporary name, which other rank processes pass to path_of().
  [[nodiscard]] std::int64_t number() const { return number_; }
  /// Returns the path before commit().
  [[nodiscard]] const std::string& path() const { return path_; }
  /// Returns the path before commit() of the export to `folder` with this number.
  [[nodiscard]] static std::string path_of(const std::string& folder, std::int64_t number);

  /// Creates the files of the plan, with headers and full size, and the index.
  void make_weights(const ExportPlan& plan) const;
  /// Writes a text file.
  void write(const std::string& name, const std::string& text) const;
  /// Copies the file `source`, if it exists. Returns whether it exists.
  bool copy(const std::string& source, const std::string& name) const;

  /// Makes all files durable (fsync), then renames the folder to its final name. If files have appeared there since the
  /// start, takes `folder`.2, .3 and so on, and reports it on messages(). Returns the name. Throws ConfigError on
  /// errors.
  std::string commit();

 private:
  std::string folder_;
  std::int64_t number_ = 0;
  std::string path_;
  FileDescriptor lock_;
  bool committed_ = false;
};

/// Writes a rank's tensors into a file that StagedFolder::make_weights() has created. Throws ConfigError if writing
/// fails.
class PartWriter {
 public:
  explicit PartWriter(std::string path);
  /// Writes bytes at `offset`. Starts writing to disk from time to time, so that finish() does not take long.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Makes everything written durable.
  void finish();

 private:
  std::string path_;
  FileDescriptor file_;
  std::uint64_t unsynced_bytes_ = 0;
};

}  // namespace chimera
