#include "oracle/text.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <utility>
#include <vector>

#include "oracle/random.h"

namespace oracle {
namespace {

constexpr std::int64_t kClass = 257;
constexpr std::int64_t kSeparator = 258;
constexpr std::int64_t kMask = 259;

std::int64_t byte_at(const std::string& text, std::int64_t i) {
  return static_cast<unsigned char>(text[static_cast<std::size_t>(i)]);
}

std::int64_t window_size(Family family, std::int64_t sequence) {
  return family == Family::Bert ? sequence - 3 : sequence + 1;
}

/// Window `i` of an epoch: a Feistel network of 8 rounds on the smallest 4^k that holds all windows, repeated until the
/// result is a window.
std::int64_t shuffled(std::int64_t i, std::int64_t windows, std::int64_t epoch, std::uint64_t seed) {
  const Random random(seed, "data.permutation." + std::to_string(epoch));
  std::uint64_t half = 1;
  while ((std::uint64_t{1} << 2 * half) < static_cast<std::uint64_t>(windows)) ++half;
  const std::uint64_t size = std::uint64_t{1} << half;
  auto value = static_cast<std::uint64_t>(i);
  do {
    std::uint64_t left = value / size;
    std::uint64_t right = value % size;
    for (std::uint64_t round = 0; round < 8; ++round) {
      std::swap(left, right);
      right ^= random.bits(round * size + left) % size;
    }
    value = left * size + right;
  } while (value >= static_cast<std::uint64_t>(windows));
  return static_cast<std::int64_t>(value);
}

/// One sample before conversion to tensors.
struct Row {
  std::vector<std::int64_t> tokens, targets, token_types;
  std::int64_t second_is_other = 0;
};

Row next_token_row(const std::string& part, std::int64_t start, std::int64_t sequence) {
  Row row;
  for (std::int64_t i = 0; i < sequence; ++i) {
    row.tokens.push_back(byte_at(part, start + i));
    row.targets.push_back(byte_at(part, start + i + 1));
    row.token_types.push_back(0);
  }
  return row;
}

/// The length of the first text of a window.
std::int64_t first_length(const std::string& window) {
  const auto at = [&](std::int64_t cut, const char* letters) {
    return cut >= 0 && std::string(letters).find(window[static_cast<std::size_t>(cut)]) != std::string::npos;
  };
  const std::vector<std::function<bool(std::int64_t)>> ends = {
      [&](std::int64_t cut) { return at(cut - 1, " \n") && at(cut - 2, ".!?"); },
      [&](std::int64_t cut) { return at(cut - 1, "\n"); }, [&](std::int64_t cut) { return at(cut - 1, " "); }};
  const auto length = static_cast<std::int64_t>(window.size());
  for (const auto& is_end : ends) {
    for (std::int64_t distance = 0; distance <= length / 4; ++distance) {
      for (const std::int64_t cut : {length / 2 - distance, length / 2 + distance}) {
        if (cut >= 2 && is_end(cut)) return cut;
      }
    }
  }
  return length / 2;
}

/// Two texts with their special tokens, before masking.
Row paired_row(const std::string& part, std::int64_t window, std::int64_t length, std::uint64_t seed,
               std::int64_t position) {
  const auto text_of = [&](std::int64_t start, std::int64_t size) {
    return part.substr(static_cast<std::size_t>(start), static_cast<std::size_t>(size));
  };
  const auto windows = static_cast<std::int64_t>(part.size()) / length;
  const std::int64_t cut = first_length(text_of(window * length, length));
  std::int64_t second = window * length + cut;
  Row row;
  const Random random(seed, "data.pair");
  const auto draw = 2 * static_cast<std::uint64_t>(position);
  if (windows > 1 && random.below(draw, 2) == 1) {
    auto other = static_cast<std::int64_t>(random.below(draw + 1, static_cast<std::uint64_t>(windows - 1)));
    if (other >= window) ++other;
    second = other * length + first_length(text_of(other * length, length));
    second = std::min(second, static_cast<std::int64_t>(part.size()) - (length - cut));
    row.second_is_other = 1;
  }
  row.tokens.push_back(kClass);
  for (std::int64_t i = 0; i < cut; ++i) row.tokens.push_back(byte_at(part, window * length + i));
  row.tokens.push_back(kSeparator);
  row.token_types.assign(row.tokens.size(), 0);
  for (std::int64_t i = 0; i < length - cut; ++i) row.tokens.push_back(byte_at(part, second + i));
  row.tokens.push_back(kSeparator);
  row.token_types.resize(row.tokens.size(), 1);
  return row;
}

void mask(Row& row, std::int64_t length, std::uint64_t seed, std::int64_t position) {
  row.targets.assign(row.tokens.size(), -100);
  std::vector<std::size_t> places;
  for (std::size_t i = 0; i < row.tokens.size(); ++i) {
    if (row.tokens[i] < 256) places.push_back(i);
  }
  const Random choice(seed, "data.mask");
  const Random fate(seed, "data.mask.fate");
  const Random replacement(seed, "data.mask.replacement");
  const auto count = static_cast<std::size_t>(std::max(1.0, std::round(0.15 * static_cast<double>(length))));
  const std::uint64_t first = static_cast<std::uint64_t>(position) * row.tokens.size();
  for (std::size_t i = 0; i < count; ++i) {
    std::swap(places[i], places[i + choice.below(first + i, places.size() - i)]);
    std::int64_t& token = row.tokens[places[i]];
    row.targets[places[i]] = token;
    const double drawn = fate.uniform(first + i);
    if (drawn < 0.9) token = drawn < 0.8 ? kMask : static_cast<std::int64_t>(replacement.below(first + i, 256));
  }
}

at::Tensor matrix(const std::vector<Row>& rows, std::vector<std::int64_t> Row::*column) {
  std::vector<at::Tensor> parts;
  for (const Row& row : rows) parts.push_back(at::tensor(row.*column, at::kLong));
  return at::stack(parts);
}

}  // namespace

std::string training_part(const std::string& text) { return text.substr(0, text.size() - text.size() / 20); }

std::string validation_part(const std::string& text) { return text.substr(text.size() - text.size() / 20); }

std::int64_t epoch_size(Family family, const std::string& part, std::int64_t sequence) {
  return static_cast<std::int64_t>(part.size()) / window_size(family, sequence);
}

Batch read_batch(Family family, const std::string& part, std::int64_t sequence, std::uint64_t seed, std::int64_t first,
                 std::int64_t count) {
  const std::int64_t windows = epoch_size(family, part, sequence);
  const std::int64_t length = window_size(family, sequence);
  std::vector<Row> rows;
  std::vector<std::int64_t> others;
  for (std::int64_t position = first; position < first + count; ++position) {
    const std::int64_t window = shuffled(position % windows, windows, position / windows, seed);
    if (family != Family::Bert) {
      rows.push_back(next_token_row(part, window * length, sequence));
    } else {
      rows.push_back(paired_row(part, window, length, seed, position));
      mask(rows.back(), length, seed, position);
    }
    others.push_back(rows.back().second_is_other);
  }
  return {matrix(rows, &Row::tokens), matrix(rows, &Row::targets), matrix(rows, &Row::token_types),
          at::tensor(others, at::kLong)};
}

}  // namespace oracle
