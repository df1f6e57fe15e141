#pragma once
// Whether the bytes of a checkpoint are those that were written.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"

namespace chimera {

/// What is wrong with a file of a checkpoint.
struct FileFault {
  std::string file;  ///< without folder
  std::string what;
};

/// Reads all files that the manifest names and compares sizes and hashes, with up to `threads` threads, each with one
/// block in memory. Returns what is wrong, at most one fault for each file, in the manifest's order: the first block
/// that differs. `progress` is called by any of the threads now and then.
[[nodiscard]] std::vector<FileFault> verify_files(const std::string& checkpoint, const Manifest& manifest, int threads,
                                                  const std::function<void()>& progress = {});

}  // namespace chimera
