#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "checkpoint/block_hashes.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <charconv>
#include <utility>

namespace chimera {
namespace {

constexpr std::size_t kHalfDigits = 16;

Hash128 from(const XXH128_hash_t& hash) { return {hash.high64, hash.low64}; }

/// Returns nothing if a character is not a lower-case hexadecimal digit.
std::optional<std::uint64_t> parse_half(std::string_view digits) {
  std::uint64_t half = 0;
  // from_chars() would also take upper case, but a hash has one spelling.
  const auto is_digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::ranges::all_of(digits, is_digit)) return std::nullopt;
  std::from_chars(digits.data(), digits.data() + digits.size(), half, 16);
  return half;
}

}  // namespace

Hash128 hash128(std::span<const std::byte> bytes) { return from(XXH3_128bits(bytes.data(), bytes.size())); }

std::string to_text(const Hash128& hash) { return fmt::format("{:016x}{:016x}", hash.high, hash.low); }

std::optional<Hash128> parse_hash128(std::string_view text) {
  if (text.size() != 2 * kHalfDigits) return std::nullopt;
  const auto high = parse_half(text.substr(0, kHalfDigits));
  const auto low = parse_half(text.substr(kHalfDigits));
  if (!high || !low) return std::nullopt;
  return Hash128{*high, *low};
}

// The state is hidden because xxhash.h, which is inlined here for speed, has 6,000 lines.
struct BlockHasher::State {
  XXH3_state_t block{};
  std::uint64_t filled = 0;  // in the current block
  std::vector<Hash128> blocks;

  State() { XXH3_128bits_reset(&block); }
  void close_block() {
    blocks.push_back(from(XXH3_128bits_digest(&block)));
    XXH3_128bits_reset(&block);
    filled = 0;
  }
};

BlockHasher::BlockHasher() : state_(std::make_unique<State>()) {}
BlockHasher::~BlockHasher() = default;

void BlockHasher::add(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const auto part = bytes.first(std::min<std::size_t>(bytes.size(), kHashBlockBytes - state_->filled));
    XXH3_128bits_update(&state_->block, part.data(), part.size());
    state_->filled += part.size();
    // A full block closes at once, so finish() has a last block only if some bytes are left.
    if (state_->filled == kHashBlockBytes) state_->close_block();
    bytes = bytes.subspan(part.size());
  }
}

std::vector<Hash128> BlockHasher::finish() {
  if (state_->filled > 0) state_->close_block();
  return std::move(state_->blocks);
}

}  // namespace chimera
