#include "data/samples.h"

#include <algorithm>
#include <numeric>

#include "core/invariant.h"
#include "core/random.h"
#include "core/reject.h"
#include "data/permutation.h"

// A position p of the run becomes a sample in three steps: the mixture gives a source and the number q of the sample in
// it, epoch_order() gives a window of the source for q, and next_token_sample() or masked_pair() makes the sample of
// the window. All random numbers are functions of seed and position, so no state is kept.

namespace chimera {
namespace {

constexpr std::int64_t kLongestSequence = std::int64_t{1} << 30;

/// Returns the tokens per window.
std::int64_t checked_window(std::span<const TokenView> sources, const SampleOptions& options) {
  // find_cut() needs 5 tokens of text, and a pair has 3 special tokens.
  const std::int64_t shortest = options.kind == SampleKind::MaskedPairs ? 8 : 1;
  if (options.sequence < shortest || options.sequence > kLongestSequence)
    reject("a sequence of {} tokens; expected {} .. {}{}", options.sequence, shortest, kLongestSequence,
           shortest == 1 ? "" : " for masked pairs");
  const std::int64_t window =
      options.kind == SampleKind::MaskedPairs ? text_length(options.sequence) : options.sequence + 1;
  for (const TokenView& source : sources) {
    if (source.size() >= window) continue;
    reject("{} has {} tokens, one sample needs {}; expected a longer text or a shorter sequence", source.name(),
           source.size(), window);
  }
  return window;
}

/// Returns for each of `count` tokens how many documents start after `start` up to it.
std::vector<std::int64_t> document_numbers(const TokenView& tokens, std::int64_t start, std::int64_t count) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(count), 0);
  // A 1 at each start; the running sum then numbers the documents of the window from 0.
  for (const std::int64_t first : tokens.document_starts(start, count)) ++numbers[static_cast<std::size_t>(first)];
  std::partial_sum(numbers.begin(), numbers.end(), numbers.begin());
  return numbers;
}

Sample next_token_sample(const TokenView& tokens, const SampleOptions& options, std::int64_t start) {
  // One token more than the sample: targets are the tokens shifted by one.
  const std::vector<std::int64_t> window = tokens.read(start, options.sequence + 1);
  Sample sample;
  sample.tokens.assign(window.begin(), window.end() - 1);
  sample.targets.assign(window.begin() + 1, window.end());
  sample.token_types.assign(sample.tokens.size(), 0);
  sample.attention.assign(sample.tokens.size(), 1);
  if (options.documents == Documents::Split) sample.documents = document_numbers(tokens, start, options.sequence);
  return sample;
}

/// The stream of source 0 does not depend on the number of sources.
Permutation epoch_order(std::int64_t windows, std::uint64_t seed, std::size_t source, std::int64_t epoch) {
  const std::string stream = source == 0 ? fmt::format("{}", epoch) : fmt::format("{}.{}", source, epoch);
  return {windows, seed, "data.permutation." + stream};
}

bool ends_sentence(std::span<const std::int64_t> tokens, std::size_t i) {
  const auto blank = tokens[i];
  const auto stop = tokens[i - 1];
  return (blank == ' ' || blank == '\n') && (stop == '.' || stop == '!' || stop == '?');
}
bool ends_line(std::span<const std::int64_t> tokens, std::size_t i) { return tokens[i] == '\n'; }
bool ends_word(std::span<const std::int64_t> tokens, std::size_t i) { return tokens[i] == ' '; }

/// Texts with text_length() tokens in total.
struct Pair {
  std::vector<std::int64_t> first;
  std::vector<std::int64_t> second;
  std::int64_t next_sentence = 0;
};

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
  // Two numbers per position: whether the second text follows, and from which window it is.
  if (windows == 1 || random.below(index, 2) == 0) return pair;
  auto other = static_cast<std::int64_t>(random.below(index + 1, static_cast<std::uint64_t>(windows) - 1));
  // Any window but the own one: the numbers from `window` on are shifted by one.
  if (other >= window) ++other;
  // The second text may extend beyond the end of the other window.
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

/// Draws `count` distinct positions of text tokens in the sample.
std::vector<std::size_t> draw_places(const Pair& pair, std::int64_t count, const CounterRandom& random,
                                     std::uint64_t index) {
  std::vector<std::size_t> places(pair.first.size() + pair.second.size());
  // Skips [CLS] and the first [SEP].
  for (std::size_t i = 0; i < places.size(); ++i) places[i] = i + (i < pair.first.size() ? 1 : 2);
  for (std::size_t i = 0; i < static_cast<std::size_t>(count); ++i) {
    // The first steps of a Fisher-Yates shuffle.
    std::swap(places[i], places[i + random.below(index + i, places.size() - i)]);
  }
  places.resize(static_cast<std::size_t>(count));
  return places;
}

void mask(Sample& sample, const Pair& pair, const SampleOptions& options, std::int64_t position) {
  const CounterRandom choice(options.seed, "data.mask");
  const CounterRandom fate(options.seed, "data.mask.fate");
  const CounterRandom replacement(options.seed, "data.mask.replacement");
  // A sample draws at most `sequence` numbers, so the numbers of two positions do not overlap.
  std::uint64_t index = static_cast<std::uint64_t>(position) * static_cast<std::uint64_t>(options.sequence);
  for (const std::size_t place : draw_places(pair, masked_count(options.sequence), choice, index)) {
    std::int64_t& token = sample.tokens[place];
    sample.targets[place] = token;
    const double drawn = fate.uniform(index);
    if (drawn < 0.8)
      token = options.special.mask;
    else if (drawn < 0.9)
      token = static_cast<std::int64_t>(replacement.below(index, static_cast<std::uint64_t>(options.replacements)));
    ++index;
  }
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

// Only the place decides, so replicas, resumed runs and other partitions read the same sample without messages.
Samples::Window Samples::window_at(std::int64_t place) const {
  const auto [number, position] = tokens_.mixture.place(place);
  const TokenView& source = tokens_.sources[number];
  const std::int64_t all = windows(source);
  return {source, epoch_order(all, options_.seed, number, position / all)(position % all)};
}

Sample Samples::sample_at(std::int64_t place) const {
  const auto [source, window] = window_at(place);
  if (options_.kind == SampleKind::MaskedPairs) return masked_pair(source, options_, place, window);
  return next_token_sample(source, options_, window * window_);
}

double Samples::squared_documents_at(std::int64_t place) const {
  const auto [source, window] = window_at(place);
  std::vector<std::int64_t> starts = source.document_starts(window * window_, options_.sequence);
  starts.push_back(options_.sequence);
  double sum = 0;
  std::int64_t before = 0;
  for (const std::int64_t start : starts) {
    const auto length = static_cast<double>(start - before);
    sum += length * length;
    before = start;
  }
  return sum;
}

std::int64_t Samples::targets_per_sample() const {
  return options_.kind == SampleKind::MaskedPairs ? masked_count(options_.sequence) : options_.sequence;
}

std::int64_t Samples::ordered_count() const {
  const TokenView& source = tokens_.sources.front();
  // Windows of evaluation share a token: the last target of one is the first token of the next.
  return options_.kind == SampleKind::MaskedPairs ? windows(source) : (source.size() - 1) / options_.sequence;
}

Sample Samples::ordered_sample(std::int64_t index) const {
  require_invariant(index >= 0 && index < ordered_count(), "a sample lies behind the last of its source");
  const TokenView& source = tokens_.sources.front();
  if (options_.kind == SampleKind::MaskedPairs) return masked_pair(source, options_, index, index);
  return next_token_sample(source, options_, index * options_.sequence);
}

std::int64_t find_cut(std::span<const std::int64_t> window) {
  const auto length = static_cast<std::int64_t>(window.size());
  const std::int64_t middle = length / 2;
  // The best kind of border first, and for each kind the one nearest to the middle.
  for (const auto ends : {ends_sentence, ends_line, ends_word}) {
    for (std::int64_t distance = 0; distance <= length / 4; ++distance) {
      for (const std::int64_t cut : {middle - distance, middle + distance})
        if (cut >= 2 && ends(window, static_cast<std::size_t>(cut) - 1)) return cut;
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
