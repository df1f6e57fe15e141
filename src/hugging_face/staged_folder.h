#pragma once

// A folder that appears complete or not at all, for exports of models. Files are written into a temporary folder next
// to it, which commit() renames. If an export is killed, the next export to the same place removes its temporary
// folder.

#include <span>

#include "checkpoint/disk.h"
#include "core/file_descriptor.h"
#include "safetensors/weight_files.h"

namespace chimera {

/// Checks an export before it reads any weights. Throws ConfigError if `folder` is not empty, cannot be created, is in
/// a checkpoint or has the name of one in a folder of checkpoints, or if its disk has less than `bytes` free. Also
/// throws if one of the export's own `inputs` is in the temporary folder of an interrupted export to `folder`, which
/// StagedFolder would remove.
void require_new_folder(const std::string& folder, std::uint64_t bytes, const std::vector<std::string>& inputs = {});

/// Removes the temporary folders of exports to `folder` that no process writes any more.
void remove_unfinished(const std::string& folder);

/// Creates `folder` and holds it with an flock, so that no other run takes the name while this one trains.
class FolderHold {
 public:
  /// Throws ConfigError if the folder cannot be created, or if another run holds it. Does not look for files in it:
  /// require_new_folder() does so before the first step, and if files appear later, commit() takes another name.
  explicit FolderHold(const std::string& folder);
  FolderHold& operator=(FolderHold&&) = delete;
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
  /// ConfigError if creation fails. All functions write through `disk`, which tests replace, and throw CheckpointError
  /// if it fails.
  explicit StagedFolder(std::string folder, Disk& disk = real_disk());
  StagedFolder& operator=(StagedFolder&&) = delete;
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
  /// Writes a text file durably.
  void write(const std::string& name, const std::string& text) const;

  /// Renames the folder to its final name, after PartWriter::finish() of all parts. If files have appeared there since
  /// the start, takes `folder`.2, .3 and so on, and says so on stderr. Returns the name when it is durable.
  std::string commit();

 private:
  std::string folder_;
  Disk& disk_;
  std::int64_t number_ = 0;
  std::string path_;
  FileDescriptor lock_;
  bool committed_ = false;
};

/// Writes a rank's tensors into a file that StagedFolder::make_weights() has created. Throws CheckpointError if writing
/// fails.
class PartWriter {
 public:
  explicit PartWriter(const std::string& path, Disk& disk = real_disk()) : file_(disk, path, disk.open(path)) {}
  /// Writes bytes at `offset`. Starts writing to disk from time to time, so that finish() does not take long.
  void write(std::uint64_t offset, std::span<const std::byte> bytes);
  /// Makes everything written durable.
  void finish() { file_.sync(); }

 private:
  OpenFile file_;
  std::uint64_t unsynced_bytes_ = 0;
};

}  // namespace chimera
