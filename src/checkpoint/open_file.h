#pragma once
// A file that is being written to a Disk.

#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "checkpoint/disk.h"

namespace chimera {

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

}  // namespace chimera
