#pragma once

// Verification of a checkpoint's files against its manifest, for resumed runs and `chimera checkpoint verify`. Threads
// take blocks from one queue, so a single large file uses all of them.

#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace chimera {

struct FileFault {
  std::string file;  ///< without folder
  std::string what;
};

/// Compares sizes and hashes of all files, with up to `threads` threads and a block of memory per thread. Returns the
/// first fault of each file, in the order of the manifest. Any thread may call `progress`.
[[nodiscard]] std::vector<FileFault> verify_files(const std::string& checkpoint, const Manifest& manifest, int threads,
                                                  const std::function<void()>& progress = {});

}  // namespace chimera
