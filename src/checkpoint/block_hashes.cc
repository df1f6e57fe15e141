#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "checkpoint/block_hashes.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace chimera {
namespace {

std::string digits_of(const XXH128_hash_t& hash) { return fmt::format("{:016x}{:016x}", hash.high64, hash.low64); }

}  // namespace

std::string hash128(std::span<const std::byte> bytes) { return digits_of(XXH3_128bits(bytes.data(), bytes.size())); }

// The state is hidden because xxhash.h, which is inlined here for speed, has 6,000 lines.
struct BlockHasher::State {
  XXH3_state_t block{};
  std::uint64_t filled = 0;  // in the current block
  std::vector<std::string> blocks;

  State() { XXH3_128bits_reset(&block); }
  void close_block() {
    blocks.push_back(digits_of(XXH3_128bits_digest(&block)));
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

std::vector<std::string> BlockHasher::finish() {
  if (state_->filled > 0) state_->close_block();
  return std::move(state_->blocks);
}

}  // namespace chimera
