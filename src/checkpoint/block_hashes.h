#pragma once
// Hashes by which a reader knows that every byte of a file is the one that was written.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// XXH3, 128 bits. As text 32 hexadecimal digits, as `xxh128sum` prints them.
struct Hash128 {
  std::uint64_t high = 0;
  std::uint64_t low = 0;
  friend bool operator==(const Hash128&, const Hash128&) = default;
};
[[nodiscard]] Hash128 hash128(std::span<const std::byte> bytes);
[[nodiscard]] std::string to_text(const Hash128& hash);
/// None where the text is not 32 lower-case hexadecimal digits.
[[nodiscard]] std::optional<Hash128> parse_hash128(std::string_view text);

/// Files are hashed in blocks of so many bytes, the last of which may be shorter: so that many threads can check one
/// file, and a message can say where it is wrong.
inline constexpr std::uint64_t kHashBlockBytes = std::uint64_t{4} << 20;
/// Blocks of a file of so many bytes.
[[nodiscard]] constexpr std::uint64_t blocks_of(std::uint64_t bytes) {
  return bytes / kHashBlockBytes + (bytes % kHashBlockBytes == 0 ? 0 : 1);
}

/// Hashes a file while it is written, from its first byte to its last.
class BlockHasher {
 public:
  BlockHasher();
  BlockHasher(BlockHasher&&) noexcept;
  BlockHasher& operator=(BlockHasher&&) noexcept;
  ~BlockHasher();

  void add(std::span<const std::byte> bytes);
  /// The hashes of all blocks, once everything was added.
  [[nodiscard]] std::vector<Hash128> finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace chimera
