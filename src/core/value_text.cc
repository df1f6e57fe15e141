#include "core/value_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <utility>

#include "core/choices.h"
#include "core/error.h"

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

/// Reads `1..4,8` or, with a depth, `D,2D..4D`. Ranges of multiples of D go in steps of D.
class CountList {
 public:
  CountList(const std::string& flag, const std::string& text, std::int64_t depth)
      : flag_(flag), text_(text), depth_(depth) {}

  std::vector<std::int64_t> run() {
    for (const std::string_view part : split_at_commas(text_)) add(part);
    return std::move(values_);
  }

 private:
  struct Term {
    std::int64_t value = 0;
    bool of_depth = false;
  };

  [[noreturn]] void refuse() const {
    throw ConfigError(fmt::format("{}: '{}' is not a list of whole numbers; give one as 4,8,16 or 1..4{}", flag_, text_,
                                  depth_ == 0 ? "" : ", or in stages as D,2D or D..4D"));
  }

  void add(std::string_view part) {
    const std::size_t dots = part.find("..");
    const Term first = term(part.substr(0, dots));
    const Term last = dots == std::string_view::npos ? first : term(part.substr(dots + 2));
    // With D = 4, `D..4D` means 4, 8, 12, 16, but `1..D` means 1, 2, 3, 4.
    const std::int64_t step = first.of_depth && last.of_depth ? depth_ : 1;
    if (last.value < first.value) refuse();
    for (std::int64_t value = first.value; value <= last.value; value += step) {
      if (values_.size() == kMaxListed) {
        throw ConfigError(fmt::format("{}: '{}' lists more than {} numbers; list fewer", flag_, text_, kMaxListed));
      }
      values_.push_back(value);
    }
  }

  [[nodiscard]] Term term(std::string_view word) const {
    Term term;
    term.of_depth = depth_ != 0 && word.ends_with('D');
    if (term.of_depth) word.remove_suffix(1);
    if (term.of_depth && word.empty()) return {depth_, true};
    const auto value = whole_number(word);
    if (!value || *value > kMaxValue) refuse();
    term.value = term.of_depth ? *value * depth_ : *value;
    return term;
  }

  static constexpr std::int64_t kMaxValue = 1'000'000'000;  // so that products of two stay in range

  const std::string& flag_;
  const std::string& text_;
  std::int64_t depth_;
  std::vector<std::int64_t> values_;
};

}  // namespace

void require_no_list(const std::string& flag, const std::string& text) {
  if (text.find(',') == std::string::npos && text.find("..") == std::string::npos) return;
  throw ConfigError(fmt::format("{}: '{}' is a list; `chimera sweep` takes lists", flag, text));
}

std::int64_t parse_count(const std::string& flag, const std::string& text) {
  if (const auto value = whole_number(text)) return *value;
  throw ConfigError(fmt::format("{}: '{}' is not a whole number in range", flag, text));
}

double parse_amount(const std::string& flag, const std::string& text, double least) {
  const auto number = parse_number<double>(text);
  if (!number || !std::isfinite(*number) || *number < least) {
    throw ConfigError(fmt::format("{}: '{}' is not a number of at least {}", flag, text, least));
  }
  if (*number > kMaxNumber)
    throw ConfigError(fmt::format("{}: {} is too large; give at most {:g}", flag, text, kMaxNumber));
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
  return CountList(flag, text, depth).run();
}

std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least) {
  std::vector<double> numbers;
  for (const std::string_view part : split_at_commas(text))
    numbers.push_back(parse_amount(flag, std::string(part), least));
  if (numbers.size() > kMaxListed) {
    throw ConfigError(fmt::format("{}: lists more than {} numbers; list fewer", flag, kMaxListed));
  }
  return numbers;
}

std::string name_for(const std::string& flag, const std::string& word, const std::vector<std::string>& names) {
  const auto same = std::ranges::find(kSameWords, std::string_view(word), &SameWord::first);
  const std::string name = same == kSameWords.end() ? word : std::string(same->second);
  // The beginning of a choice is not enough: `--optimizer adam` must not become adamw.
  for (const std::string& exact : {word, name}) {
    if (std::ranges::count(names, exact) > 0) return exact;
  }
  throw ConfigError(unknown_name(flag, word, names));
}

}  // namespace chimera
