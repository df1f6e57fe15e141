#include "core/value_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/choices.h"
#include "core/mapped.h"
#include "core/reject.h"

namespace chimera {
namespace {

/// Parses texts such as 4, 1e3 or 2.5e6.
std::optional<std::int64_t> whole_number(std::string_view text) {
  if (const auto value = parse_number<std::int64_t>(text)) return value;
  // Above 2^53, a double skips whole numbers.
  constexpr double kMaxExact = std::int64_t{1} << 53;
  // 1e6 is a count, 4.0 is not.
  if (text.find_first_of("eE") == std::string_view::npos) return std::nullopt;
  const auto number = parse_number<double>(text);
  if (!number || !(std::abs(*number) <= kMaxExact) || *number != std::floor(*number)) return std::nullopt;
  return static_cast<std::int64_t>(*number);
}

using SameWord = std::pair<std::string_view, std::string_view>;
// Words that PyTorch and other programs accept for the same things.
constexpr std::array<SameWord, 7> kSameWords = {SameWord{"bf16", "bfloat16"},       SameWord{"fp32", "float32"},
                                                SameWord{"float", "float32"},       SameWord{"fp64", "float64"},
                                                SameWord{"double", "float64"},      SameWord{"gpu", "cuda"},
                                                SameWord{"neighbours", "neighbors"}};

}  // namespace

void require_no_list(const std::string& flag, const std::string& text) {
  if (text.find(',') == std::string::npos && text.find("..") == std::string::npos) return;
  reject("{}: '{}' is a list; `chimera sweep` takes lists", flag, text);
}

std::int64_t parse_count(const std::string& flag, const std::string& text) {
  if (const auto value = whole_number(text)) return *value;
  reject("{}: '{}' is not a whole number in range", flag, text);
}

double parse_amount(const std::string& flag, const std::string& text, double least) {
  const auto number = parse_number<double>(text);
  if (!number || !std::isfinite(*number) || *number < least)
    reject("{}: '{}' is not a number of at least {}", flag, text, least);
  if (*number > kMaxNumber) reject("{}: {} is too large; give at most {:g}", flag, text, kMaxNumber);
  return *number;
}

std::vector<std::string_view> split_at(char separator, std::string_view text) {
  std::vector<std::string_view> parts;
  for (auto end = text.find(separator); end != std::string_view::npos; end = text.find(separator)) {
    parts.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  parts.push_back(text);
  return parts;
}

bool is_list(const std::string& text) { return text.find_first_of(",.D") != std::string::npos; }

std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text, std::int64_t depth) {
  constexpr std::int64_t kMaxValue = 1'000'000'000;  // so that products of two stay in range
  const auto refuse = [&] {
    reject("{}: '{}' is not a list of whole numbers; give one as 4,8,16 or 1..4{}", flag, text,
           depth == 0 ? "" : ", or in stages as D,2D or D..4D");
  };
  const auto is_of_depth = [depth](std::string_view word) { return depth != 0 && word.ends_with('D'); };
  const auto value_of = [&](std::string_view word) {
    if (word == "D" && is_of_depth(word)) return depth;
    const std::int64_t unit = is_of_depth(word) ? depth : 1;
    if (is_of_depth(word)) word.remove_suffix(1);
    const auto value = whole_number(word);
    if (!value || *value > kMaxValue) refuse();
    return *value * unit;
  };
  std::vector<std::int64_t> values;
  for (const std::string_view part : split_at_commas(text)) {
    const std::size_t dots = part.find("..");
    const std::string_view first = part.substr(0, dots);
    const std::string_view last = dots == part.npos ? first : part.substr(dots + 2);
    // With D = 4, `D..4D` means 4, 8, 12, 16, but `1..D` means 1, 2, 3, 4.
    const std::int64_t step = is_of_depth(first) && is_of_depth(last) ? depth : 1;
    const std::int64_t end = value_of(last);
    if (end < value_of(first)) refuse();
    for (std::int64_t value = value_of(first); value <= end; value += step) {
      if (values.size() == kMaxListed)
        reject("{}: '{}' lists more than {} numbers; list fewer", flag, text, kMaxListed);
      values.push_back(value);
    }
  }
  return values;
}

std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least) {
  auto numbers = mapped<double>(split_at_commas(text),
                                [&](std::string_view part) { return parse_amount(flag, std::string(part), least); });
  if (numbers.size() > kMaxListed) reject("{}: lists more than {} numbers; list fewer", flag, kMaxListed);
  return numbers;
}

std::string name_for(const std::string& flag, const std::string& word, const std::vector<std::string>& names) {
  const auto same = std::ranges::find(kSameWords, std::string_view(word), &SameWord::first);
  const std::string name = same == kSameWords.end() ? word : std::string(same->second);
  // The beginning of a choice is not enough: `--optimizer adam` must not become adamw.
  for (const std::string& exact : {word, name})
    if (std::ranges::count(names, exact) > 0) return exact;
  throw ConfigError(unknown_name(flag, word, names));
}

}  // namespace chimera
