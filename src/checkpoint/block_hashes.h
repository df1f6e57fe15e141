#pragma once

// Hashes that detect damaged checkpoints. While a rank writes a file, BlockHasher hashes it in blocks of 4 MiB; the
// manifest, the checkpoint's list of files (manifest.h), stores the hashes of all blocks. Verification (verify.h) reads
// the blocks with several threads and names the damaged bytes. The hash function XXH3 detects accidents, not forgery.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// XXH3 hash of 128 bits. As text, it is 32 hexadecimal digits, as `xxh128sum` prints.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
/// Returns the hash of these bytes.
[[nodiscard]] Hash128 hash128(std::span<const std::byte> bytes);
[[nodiscard]] std::string to_text(const Hash128& hash);
/// Returns the hash that to_text() has written; nullopt for other text.
[[nodiscard]] std::optional<Hash128> parse_hash128(std::string_view text);

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
  [[nodiscard]] std::vector<Hash128> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chimera
