#include "data/samples.h"

#include <fmt/format.h>

#include <cassert>
#include <utility>

#include "core/error.h"
#include "data/masked_pairs.h"
#include "data/permutation.h"

namespace chimera {
namespace {

constexpr std::int64_t kLongestSequence = std::int64_t{1} << 30;

std::int64_t shortest_sequence(SampleKind kind) { return kind == SampleKind::MaskedPairs ? 8 : 1; }

/// Tokens of a window, after the checks that the options must pass.
std::int64_t checked_window(const TokenView& tokens, const SampleOptions& options) {
  const std::int64_t shortest = shortest_sequence(options.kind);
  if (options.sequence < shortest || options.sequence > kLongestSequence) {
    throw ConfigError(fmt::format("a sequence of {} tokens; expected {} .. {}{}", options.sequence, shortest,
                                  kLongestSequence, shortest == 1 ? "" : " for masked pairs"));
  }
  const std::int64_t window =
      options.kind == SampleKind::MaskedPairs ? text_length(options.sequence) : options.sequence + 1;
  if (tokens.size() < window) {
    throw ConfigError(fmt::format("{} has {} tokens, one sample needs {}; expected a longer text or a shorter sequence",
                                  tokens.name(), tokens.size(), window));
  }
  return window;
}

Sample next_token_sample(const TokenView& tokens, std::int64_t sequence, std::int64_t start) {
  Sample sample;
  for (std::int64_t i = start; i < start + sequence; ++i) {
    sample.tokens.push_back(tokens[i]);
    sample.targets.push_back(tokens[i + 1]);
  }
  sample.token_types.assign(sample.tokens.size(), 0);
  sample.attention.assign(sample.tokens.size(), 1);
  return sample;
}

}  // namespace

std::int64_t vocabulary_needed(SampleKind kind) {
  if (kind == SampleKind::NextToken) return ByteTokenizer().vocabulary_size();
  return static_cast<std::int64_t>(SpecialToken::Mask) + 1;
}

Samples::Samples(TokenView tokens, const SampleOptions& options)
    : tokens_(std::move(tokens)), options_(options), window_(checked_window(tokens_, options)) {}

Sample Samples::sample(std::int64_t step, std::int64_t index, std::int64_t mini_batch) const {
  assert(step >= 0 && index >= 0 && index < mini_batch);
  const std::int64_t position = step * mini_batch + index;
  const std::int64_t epoch = position / count();
  const std::int64_t window = Permutation(count(), options_.seed, epoch)(position % count());
  if (options_.kind == SampleKind::MaskedPairs) return masked_pair(tokens_, options_, position, window);
  return next_token_sample(tokens_, options_.sequence, window * window_);
}

std::int64_t Samples::targets_per_sample() const {
  return options_.kind == SampleKind::MaskedPairs ? masked_count(options_.sequence) : options_.sequence;
}

}  // namespace chimera
