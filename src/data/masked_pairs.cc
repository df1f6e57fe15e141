#include "data/masked_pairs.h"

#include <algorithm>
#include <utility>

#include "core/random.h"

namespace chimera {
namespace {

bool ends_sentence(std::span<const std::int64_t> tokens, std::size_t i) {
  const auto blank = tokens[i];
  const auto stop = tokens[i - 1];
  return (blank == ' ' || blank == '\n') && (stop == '.' || stop == '!' || stop == '?');
}
bool ends_line(std::span<const std::int64_t> tokens, std::size_t i) { return tokens[i] == '\n'; }
bool ends_word(std::span<const std::int64_t> tokens, std::size_t i) { return tokens[i] == ' '; }

/// Two texts of text_length() tokens in all.
struct Pair {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  std::int64_t next_sentence = 0;
};

/// Tokens that are no bytes do not show where a sentence ends.
std::int64_t cut_of(const std::vector<std::int64_t>& window, const SampleOptions& options) {
  return options.is_plain_text ? find_cut(window) : static_cast<std::int64_t>(window.size()) / 2;
}

Pair choose_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position, std::int64_t window) {
  const std::int64_t length = text_length(options.sequence);
  const std::int64_t windows = tokens.size() / length;
  const std::vector<std::int64_t> own = tokens.read(window * length, length);
  const std::int64_t cut = cut_of(own, options);
  Pair pair{{own.begin(), own.begin() + cut}, {own.begin() + cut, own.end()}, 0};
  const CounterRandom random(options.seed, "data.pair");
  const auto index = static_cast<std::uint64_t>(position) * 2;
  if (windows == 1 || random.below(index, 2) == 0) return pair;
  auto other = static_cast<std::int64_t>(random.below(index + 1, static_cast<std::uint64_t>(windows) - 1));
  if (other >= window) ++other;
  // It begins where a second text does, and goes on past its window where that is too short.
  const std::int64_t start = other * length + cut_of(tokens.read(other * length, length), options);
  pair.second = tokens.read(std::min(start, tokens.size() - (length - cut)), length - cut);
  pair.next_sentence = 1;
  return pair;
}

Sample write_pair(const Pair& pair, const SpecialTokens& special) {
  Sample sample;
  const auto append = [&sample](std::int64_t token, std::int64_t type) {
    sample.tokens.push_back(token);
    sample.token_types.push_back(type);
  };
  append(special.classification, 0);
  for (const std::int64_t token : pair.first) append(token, 0);
  append(special.separator, 0);
  for (const std::int64_t token : pair.second) append(token, 1);
  append(special.separator, 1);
  sample.targets.assign(sample.tokens.size(), kIgnoredTarget);
  sample.attention.assign(sample.tokens.size(), 1);
  sample.next_sentence = pair.next_sentence;
  return sample;
}

/// The places of the text tokens in the sample, all but [CLS] and both [SEP], in a random order of which the first
/// `count` are drawn.
std::vector<std::size_t> draw_places(const Pair& pair, std::int64_t count, const CounterRandom& random,
                                     std::uint64_t index) {
  std::vector<std::size_t> places(pair.first.size() + pair.second.size());
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i + (i < pair.first.size() ? 1 : 2);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::swap(places[i], places[i + random.below(index + i, places.size() - i)]);
  }
  places.resize(static_cast<std::size_t>(count));
  return places;
}

void mask(Sample& sample, const Pair& pair, const SampleOptions& options, std::int64_t position) {
  const CounterRandom choice(options.seed, "data.mask");
  const CounterRandom fate(options.seed, "data.mask.fate");
  const CounterRandom replacement(options.seed, "data.mask.replacement");
  std::uint64_t index = static_cast<std::uint64_t>(position) * static_cast<std::uint64_t>(options.sequence);
  for (const std::size_t place : draw_places(pair, masked_count(options.sequence), choice, index)) {
    std::int64_t& token = sample.tokens[place];
    sample.targets[place] = token;
    const double drawn = fate.uniform(index);
    if (drawn < 0.8) {
      token = options.special.mask;
    } else if (drawn < 0.9) {
      token = static_cast<std::int64_t>(replacement.below(index, static_cast<std::uint64_t>(options.replacements)));
    }
    ++index;
  }
}

}  // namespace

std::int64_t find_cut(std::span<const std::int64_t> window) {
  const auto length = static_cast<std::int64_t>(window.size());
  const std::int64_t middle = length / 2;
  for (const auto ends : {ends_sentence, ends_line, ends_word}) {
    for (std::int64_t distance = 0; distance <= length / 4; ++distance) {
      for (const std::int64_t cut : {middle - distance, middle + distance}) {
        if (cut >= 2 && ends(window, static_cast<std::size_t>(cut) - 1)) return cut;
      }
    }
  }
  return middle;
}

Sample masked_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position, std::int64_t window) {
  const Pair pair = choose_pair(tokens, options, position, window);
  Sample sample = write_pair(pair, options.special);
  mask(sample, pair, options, position);
  return sample;
}

}  // namespace chimera
