#pragma once
// How many logits exist at once: the loss of a large vocabulary is computed a chunk of tokens at a time.

#include <algorithm>
#include <cstdint>

namespace chimera {

/// Logits of a chunk at most, unless one token alone has more: 64 MiB in float32.
inline constexpr std::int64_t kLogitsOfChunk = std::int64_t{1} << 24;

/// Tokens in chunks of `size`, in their order; the last chunk may be smaller.
struct TokenChunks {
  std::int64_t tokens = 0;
  std::int64_t size = 1;

  [[nodiscard]] std::int64_t count() const { return (tokens + size - 1) / size; }
  [[nodiscard]] std::int64_t first_token(std::int64_t chunk) const { return chunk * size; }
  [[nodiscard]] std::int64_t size_of(std::int64_t chunk) const { return std::min(size, tokens - first_token(chunk)); }
  /// The size of the last chunk; 0 without tokens.
  [[nodiscard]] std::int64_t last_size() const { return tokens == 0 ? 0 : size_of(count() - 1); }
};

/// Makes as few chunks as `most_logits` allows, of about equal size. A function of the numbers of tokens and words
/// alone: the same sums in the same order for every schedule.
[[nodiscard]] constexpr TokenChunks chunks_of(std::int64_t tokens, std::int64_t vocabulary,
                                              std::int64_t most_logits = kLogitsOfChunk) {
  if (tokens == 0) return {};
  const std::int64_t most_tokens = std::max<std::int64_t>(1, most_logits / vocabulary);
  const std::int64_t count = (tokens + most_tokens - 1) / most_tokens;
  return {tokens, (tokens + count - 1) / count};
}

}  // namespace chimera
