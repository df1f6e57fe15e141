#include "data/masked_pairs.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/random.h"

namespace chimera {
namespace {

constexpr double kMaskedShare = 0.15;
constexpr std::int64_t kBytes = 256;

std::int64_t id(SpecialToken token) { return static_cast<std::int64_t>(token); }

bool ends_sentence(const TokenView& tokens, std::int64_t i) {
  const auto blank = tokens[i];
  const auto stop = tokens[i - 1];
  return (blank == ' ' || blank == '\n') && (stop == '.' || stop == '!' || stop == '?');
}
bool ends_line(const TokenView& tokens, std::int64_t i) { return tokens[i] == '\n'; }
bool ends_word(const TokenView& tokens, std::int64_t i) { return tokens[i] == ' '; }

/// Two texts of text_length() tokens in all.
struct Pair {
  std::int64_t first = 0;   ///< where the first text starts
  std::int64_t cut = 0;     ///< its length
  std::int64_t second = 0;  ///< where the second text starts
  std::int64_t next_sentence = 0;
};

Pair choose_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position, std::int64_t window) {
  const std::int64_t length = text_length(options.sequence);
  const std::int64_t windows = tokens.size() / length;
  const std::int64_t cut = find_cut(tokens, window * length, length);
  Pair pair{window * length, cut, window * length + cut, 0};
  const CounterRandom random(options.seed, "data.pair");
  const auto index = static_cast<std::uint64_t>(position) * 2;
  if (windows == 1 || random.below(index, 2) == 0) return pair;
  auto other = static_cast<std::int64_t>(random.below(index + 1, static_cast<std::uint64_t>(windows) - 1));
  if (other >= window) ++other;
  // It begins where a second text does, and goes on past its window where that is too short.
  const std::int64_t other_start = other * length;
  pair.second = std::min(other_start + find_cut(tokens, other_start, length), tokens.size() - (length - cut));
  pair.next_sentence = 1;
  return pair;
}

Sample write_pair(const TokenView& tokens, const Pair& pair, std::int64_t sequence) {
  Sample sample;
  const auto append = [&sample](std::int64_t token, std::int64_t type) {
    sample.tokens.push_back(token);
    sample.token_types.push_back(type);
  };
  append(id(SpecialToken::Class), 0);
  for (std::int64_t i = 0; i < pair.cut; ++i) append(tokens[pair.first + i], 0);
  append(id(SpecialToken::Separator), 0);
  for (std::int64_t i = 0; i < text_length(sequence) - pair.cut; ++i) append(tokens[pair.second + i], 1);
  append(id(SpecialToken::Separator), 1);
  sample.targets.assign(sample.tokens.size(), kIgnoredTarget);
  sample.attention.assign(sample.tokens.size(), 1);
  sample.next_sentence = pair.next_sentence;
  return sample;
}

/// The places of the text tokens in the sample, in a random order of which the first `count` are drawn.
std::vector<std::size_t> draw_places(const Sample& sample, std::int64_t count, const CounterRandom& random,
                                     std::uint64_t index) {
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    if (sample.tokens[i] < kBytes) places.push_back(i);
  }
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    std::swap(places[i], places[i + random.below(index + i, places.size() - i)]);
  }
  places.resize(static_cast<std::size_t>(count));
  return places;
}

void mask(Sample& sample, const SampleOptions& options, std::int64_t position) {
  const CounterRandom choice(options.seed, "data.mask");
  const CounterRandom fate(options.seed, "data.mask.fate");
  const CounterRandom replacement(options.seed, "data.mask.replacement");
  std::uint64_t index = static_cast<std::uint64_t>(position) * static_cast<std::uint64_t>(options.sequence);
  for (const std::size_t place : draw_places(sample, masked_count(options.sequence), choice, index)) {
    std::int64_t& token = sample.tokens[place];
    sample.targets[place] = token;
    const double drawn = fate.uniform(index);
    if (drawn < 0.8) {
      token = id(SpecialToken::Mask);
    } else if (drawn < 0.9) {
      token = static_cast<std::int64_t>(replacement.below(index, kBytes));
    }
    ++index;
  }
}

}  // namespace

std::int64_t masked_count(std::int64_t sequence) {
  return std::max<std::int64_t>(1, std::llround(kMaskedShare * static_cast<double>(text_length(sequence))));
}

std::int64_t find_cut(const TokenView& tokens, std::int64_t start, std::int64_t length) {
  const std::int64_t middle = length / 2;
  for (const auto ends : {ends_sentence, ends_line, ends_word}) {
    for (std::int64_t distance = 0; distance <= length / 4; ++distance) {
      for (const std::int64_t cut : {middle - distance, middle + distance}) {
        if (cut >= 2 && ends(tokens, start + cut - 1)) return cut;
      }
    }
  }
  return middle;
}

Sample masked_pair(const TokenView& tokens, const SampleOptions& options, std::int64_t position, std::int64_t window) {
  const Pair pair = choose_pair(tokens, options, position, window);
  Sample sample = write_pair(tokens, pair, options.sequence);
  mask(sample, options, position);
  return sample;
}

}  // namespace chimera
