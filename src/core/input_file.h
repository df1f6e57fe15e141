#pragma once
// Files that are read in one piece.

#include <cstddef>
#include <string>

namespace chimera {

/// No file that is read in one piece is longer, unless its reader says so: 64 MiB.
inline constexpr std::size_t kMostInputBytes = std::size_t{64} << 20;

/// The text of a file, or of standard input for `-`. Throws ConfigError, naming the file, where it cannot be read or
/// has more than `most` bytes; of /dev/zero no more than that is read.
[[nodiscard]] std::string read_whole(const std::string& path, std::size_t most = kMostInputBytes);

}  // namespace chimera
