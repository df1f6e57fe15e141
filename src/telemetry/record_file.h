#pragma once
// A file to which a run adds records, whatever its disk does.

#include <sys/types.h>

#include <string>

#include "core/file_descriptor.h"

namespace chimera {

/// Records that a disk has no room for, or fails to take, hold up nothing: they wait in memory, and are written with
/// the next one that finds room. Each is whole in the file or not there at all, unless the machine ends. That it fails,
/// and that it works again, is told on messages(). A pipe that nobody reads any more takes no records, which is no
/// failure.
class RecordFile {
 public:
  /// `file`: open for appending. `name` in messages: the flag and the path. `size`: of what is in it.
  RecordFile(FileDescriptor file, std::string name, off_t size = 0);
  /// Adds a record, by one system call together with those that wait.
  void add(const std::string& record);
  /// At the end: throws Error where records wait that the disk still does not take.
  void finish();

 private:
  /// Returns the error, 0 where nothing waits any more.
  int write_waiting();

  FileDescriptor file_;
  std::string name_;
  off_t size_;           // of all whole records
  std::string waiting_;  // records, one after the other
  bool has_failed_ = false;
};

}  // namespace chimera
