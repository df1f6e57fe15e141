#pragma once

// Hashes that detect damaged checkpoints. While a rank writes a file, BlockHasher hashes it in blocks of 4 MiB; the
// manifest, the checkpoint's list of files (manifest.h), stores the hashes of all blocks. Verification (verify.h) reads
// the blocks with several threads and names the damaged bytes. The hash function XXH3 detects accidents, not forgery.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

namespace chimera {

/// Number of digits of a hash.
inline constexpr std::size_t kHashDigits = 32;
/// Returns the XXH3 hash (128 bits) of these bytes as lower-case hexadecimal digits, as `xxh128sum` prints.
[[nodiscard]] std::string hash128(std::span<const std::byte> bytes);

/// Files are hashed in blocks of this size, to verify them in parallel and to locate faults.
inline constexpr std::uint64_t kHashBlockBytes = std::uint64_t{4} << 20;
/// Returns the number of blocks in a file of this size; the last block may be shorter.
[[nodiscard]] constexpr std::uint64_t blocks_of(std::uint64_t bytes) {
  return bytes / kHashBlockBytes + (bytes % kHashBlockBytes == 0 ? 0 : 1);
}

/// Hashes the bytes of a file, which are added in order and may be cut anywhere.
class BlockHasher {
 public:
  BlockHasher();
  ~BlockHasher();

  void add(std::span<const std::byte> bytes);
  /// Returns the hashes of all blocks. Call it once.
  [[nodiscard]] std::vector<std::string> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chimera
