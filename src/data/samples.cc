#include "data/samples.h"

#include <fmt/format.h>

#include <cassert>
#include <numeric>
#include <span>
#include <utility>

#include "core/error.h"
#include "data/masked_pairs.h"
#include "data/permutation.h"

namespace chimera {
namespace {

constexpr std::int64_t kLongestSequence = std::int64_t{1} << 30;

std::int64_t shortest_sequence(SampleKind kind) { return kind == SampleKind::MaskedPairs ? 8 : 1; }

std::int64_t targets_of(const SampleOptions& options) {
  return options.kind == SampleKind::MaskedPairs ? masked_count(options.sequence) : options.sequence;
}

/// Tokens of a window, after the checks that the options must pass.
std::int64_t checked_window(std::span<const TokenView> sources, const SampleOptions& options) {
  const std::int64_t shortest = shortest_sequence(options.kind);
  if (options.sequence < shortest || options.sequence > kLongestSequence) {
    throw ConfigError(fmt::format("a sequence of {} tokens; expected {} .. {}{}", options.sequence, shortest,
                                  kLongestSequence, shortest == 1 ? "" : " for masked pairs"));
  }
  const std::int64_t window =
      options.kind == SampleKind::MaskedPairs ? text_length(options.sequence) : options.sequence + 1;
  for (const TokenView& source : sources) {
    if (source.size() >= window) continue;
    throw ConfigError(fmt::format("{} has {} tokens, one sample needs {}; expected a longer text or a shorter sequence",
                                  source.name(), source.size(), window));
  }
  return window;
}

/// For each of `count` tokens from `start` on, how many documents of the sample begin before or with it.
std::vector<std::int64_t> document_numbers(const TokenView& tokens, std::int64_t start, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count), 0);
  for (const std::int64_t first : tokens.document_starts(start, count)) ++numbers[static_cast<std::size_t>(first)];
  std::partial_sum(numbers.begin(), numbers.end(), numbers.begin());
  return numbers;
}

Sample next_token_sample(const TokenView& tokens, const SampleOptions& options, std::int64_t start) {
  const std::vector<std::int64_t> window = tokens.read(start, options.sequence + 1);
  Sample sample;
  sample.tokens.assign(window.begin(), window.end() - 1);
  sample.targets.assign(window.begin() + 1, window.end());
  sample.token_types.assign(sample.tokens.size(), 0);
  sample.attention.assign(sample.tokens.size(), 1);
  if (options.documents == Documents::Split) sample.documents = document_numbers(tokens, start, options.sequence);
  return sample;
}

/// The order of an epoch of a source. The first one's does not know that there are others.
Permutation epoch_order(std::int64_t windows, std::uint64_t seed, std::size_t source, std::int64_t epoch) {
  if (source == 0) return {windows, seed, epoch};
  return {windows, seed, fmt::format("data.permutation.{}.{}", source, epoch)};
}

}  // namespace

std::int64_t vocabulary_needed(SampleKind kind) {
  if (kind == SampleKind::NextToken) return kByteVocabulary;
  return SpecialTokens().mask + 1;
}

Samples::Samples(MixedTokens tokens, const SampleOptions& options)
    : tokens_(std::move(tokens)), options_(options), window_(checked_window(tokens_.sources, options)) {}

Samples::Samples(TokenView tokens, const SampleOptions& options)
    : Samples(MixedTokens{{std::move(tokens)}, Mixture(std::vector<MixtureEntry>(1), options.seed)}, options) {}

std::int64_t Samples::count() const {
  return std::accumulate(tokens_.sources.begin(), tokens_.sources.end(), std::int64_t{0},
                         [this](std::int64_t sum, const TokenView& source) { return sum + windows(source); });
}

Sample Samples::sample(std::int64_t step, std::int64_t index, std::int64_t mini_batch) const {
  assert(step >= 0 && index >= 0 && index < mini_batch);
  const std::int64_t place = step * mini_batch + index;
  const auto [number, position] = tokens_.mixture.place(place);
  const TokenView& source = tokens_.sources[number];
  const std::int64_t all = windows(source);
  const std::int64_t window = epoch_order(all, options_.seed, number, position / all)(position % all);
  if (options_.kind == SampleKind::MaskedPairs) return masked_pair(source, options_, place, window);
  return next_token_sample(source, options_, window * window_);
}

std::int64_t Samples::targets_per_sample() const { return targets_of(options_); }

OrderedSamples::OrderedSamples(TokenView tokens, const SampleOptions& options)
    : tokens_(std::move(tokens)), options_(options), window_(checked_window({&tokens_, 1}, options)) {}

std::int64_t OrderedSamples::count() const {
  if (options_.kind == SampleKind::MaskedPairs) return tokens_.size() / window_;
  return (tokens_.size() - 1) / options_.sequence;
}

Sample OrderedSamples::sample(std::int64_t index) const {
  assert(index >= 0 && index < count());
  if (options_.kind == SampleKind::MaskedPairs) return masked_pair(tokens_, options_, index, index);
  return next_token_sample(tokens_, options_, index * options_.sequence);
}

std::int64_t OrderedSamples::targets_per_sample() const { return targets_of(options_); }

}  // namespace chimera
