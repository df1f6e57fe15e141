#pragma once
// Hashes of whole files, by which ranks find out that they read the same data.

#include <cstdint>
#include <functional>
#include <string>

#include "data/data_file.h"

namespace chimera {

/// Where hashes of large files are kept, so that the next run (and every rank of this one) need not read a terabyte to
/// know that it is the same one.
struct HashCache {
  std::string folder = {};                            ///< made where it is missing; empty: nothing is kept
  std::int64_t least_bytes = std::int64_t{64} << 20;  ///< of a file whose hash is kept; others are read each time
};

/// $XDG_CACHE_HOME/chimera/hashes, or else ~/.cache/chimera/hashes.
[[nodiscard]] HashCache default_hash_cache();

/// XXH3, 64 bits, of all bytes of a file. One that is kept counts as long as device, inode, size and the time of the
/// last change are those of then; of a file that changes while it is read nothing is kept, and a cache that cannot be
/// written is no error. `progress` is called now and then while the file is read.
[[nodiscard]] std::uint64_t content_hash(const DataFile& file, const HashCache& cache,
                                         const std::function<void()>& progress);

}  // namespace chimera
