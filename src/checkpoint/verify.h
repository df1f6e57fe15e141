#pragma once

// Verification of a checkpoint's files against its manifest, the list of files with their hashes (manifest.h), for
// resumed runs and `chimera checkpoint verify`. Files are hashed in blocks of 4 MiB. Threads take blocks from one
// queue, so a single large file uses all of them.

#include <functional>

#include "checkpoint/manifest.h"

namespace chimera {

/// A file that does not match the manifest.
struct FileFault {
  std::string file;  ///< name without folder
  std::string what;  ///< the fault, for a message
};

/// Compares the sizes and hashes of all files in the folder `checkpoint` with the manifest. Uses up to `threads`
/// threads, each with memory for one block. Returns the first fault of each file, in the order of the manifest; empty
/// if all files are right. A missing or unreadable file is a fault too, so nothing is thrown for it. Each thread calls
/// `progress`, if not empty, after each block that it has checked. Several threads may call it at once, so it must be
/// thread-safe.
[[nodiscard]] std::vector<FileFault> verify_files(const std::string& checkpoint, const Manifest& manifest, int threads,
                                                  const std::function<void()>& progress = {});

}  // namespace chimera
