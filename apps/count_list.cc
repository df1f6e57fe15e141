#include "count_list.h"

#include <fmt/format.h>

#include <string_view>

#include "core/error.h"
#include "core/parse_number.h"
#include "options.h"

namespace chimera::apps {

std::vector<std::string_view> parts_of(std::string_view list) {
  std::vector<std::string_view> parts;
  for (auto comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    parts.push_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  parts.push_back(list);
  return parts;
}

namespace {

class CountList {
 public:
  CountList(const std::string& flag, const std::string& text, std::int64_t depth)
      : flag_(flag), text_(text), depth_(depth) {}

  std::vector<std::int64_t> run() {
    for (const std::string_view part : parts_of(text_)) add(part);
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
    const std::int64_t step = first.of_depth && last.of_depth ? depth_ : 1;
    if (last.value < first.value) refuse();
    for (std::int64_t value = first.value; value <= last.value; value += step) {
      if (values_.size() == kMostListed) {
        throw ConfigError(fmt::format("{}: '{}' lists more than {} numbers; list fewer", flag_, text_, kMostListed));
      }
      values_.push_back(value);
    }
  }

  [[nodiscard]] Term term(std::string_view word) const {
    Term term;
    term.of_depth = depth_ != 0 && word.ends_with('D');
    if (term.of_depth) word.remove_suffix(1);
    if (term.of_depth && word.empty()) return {depth_, true};
    const auto value = parse_number<std::int64_t>(word);
    if (!value || *value > kMostValue) refuse();
    term.value = term.of_depth ? *value * depth_ : *value;
    return term;
  }

  static constexpr std::int64_t kMostValue = 1'000'000'000;  // so that products of two stay in range

  const std::string& flag_;
  const std::string& text_;
  std::int64_t depth_;
  std::vector<std::int64_t> values_;
};

}  // namespace

bool is_list(const std::string& text) { return text.find_first_of(",.D") != std::string::npos; }

std::vector<std::int64_t> parse_count_list(const std::string& flag, const std::string& text, std::int64_t depth) {
  return CountList(flag, text, depth).run();
}

std::vector<double> parse_number_list(const std::string& flag, const std::string& text, double least) {
  std::vector<double> numbers;
  for (const std::string_view part : parts_of(text)) numbers.push_back(parse_amount(flag, std::string(part), least));
  if (numbers.size() > kMostListed) {
    throw ConfigError(fmt::format("{}: lists more than {} numbers; list fewer", flag, kMostListed));
  }
  return numbers;
}

}  // namespace chimera::apps
