#include "flags/values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <optional>
#include <utility>

#include "core/cgroup.h"
#include "core/complete_name.h"
#include "core/console.h"
#include "core/error.h"

namespace chimera::apps {
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

constexpr const char* kOneOfData =
    "give one file or folder, a mixture such as 0.5:a 0.5:b, or quote a name with blanks";

using SameWord = std::pair<std::string_view, std::string_view>;
constexpr std::array<SameWord, 6> kSameWords = {SameWord{"bf16", "bfloat16"},  SameWord{"fp32", "float32"},
                                                SameWord{"float", "float32"},  SameWord{"fp64", "float64"},
                                                SameWord{"double", "float64"}, SameWord{"gpu", "cuda"}};

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

void complete_names(CLI::Option* option, std::vector<std::string> names) {
  option->transform([names = std::move(names)](const std::string& word) {
    std::error_code none;
    // No name of a list contains a slash or a dot.
    const bool is_path = word.find_first_of("/.") != std::string::npos || std::filesystem::exists(word, none);
    return is_path ? word : complete_name(word, names);
  });
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

void require_no_list(const std::string& flag, const std::string& text) {
  if (text.find(',') == std::string::npos && text.find("..") == std::string::npos) return;
  throw ConfigError(fmt::format("{}: '{}' is a list; `chimera sweep` takes lists", flag, text));
}

std::int64_t parse_count(const std::string& flag, const std::string& text) {
  if (const auto value = whole_number(text)) return *value;
  throw ConfigError(fmt::format("{}: '{}' is not a whole number in range", flag, text));
}

CLI::Option* add_text(CLI::App& app, const std::string& flag, std::function<void(const std::string&)> take,
                      const std::string& type, const std::string& description) {
  return app.add_option_function<std::string>(flag, std::move(take), description)->type_name(type);
}

CLI::Option* add_count(CLI::App& app, const std::string& flag, std::int64_t& value, const std::string& description) {
  return add_text(
      app, flag, [&value, flag](const std::string& text) { value = parse_count(flag, text); }, "N", description);
}

CLI::Option* add_count(CLI::App& app, const std::string& flag, std::optional<std::int64_t>& value,
                       const std::string& description) {
  return add_text(
      app, flag, [&value, flag](const std::string& text) { value = parse_count(flag, text); }, "N", description);
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

CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least) {
  return add_text(
      app, flag, [&value, flag, least](const std::string& text) { value = parse_amount(flag, text, least); }, "X",
      description);
}

CLI::Option* add_number(CLI::App& app, const std::string& flag, std::optional<double>& value,
                        const std::string& description) {
  return add_text(
      app, flag, [&value, flag](const std::string& text) { value = parse_amount(flag, text); }, "X", description);
}

CLI::Option* add_path(CLI::App& app, const std::string& flag, std::string& path, const std::string& description,
                      PathKind kind) {
  const bool is_folder = kind == PathKind::Folder;
  const auto take = [&path, flag, is_folder](const std::string& text) {
    if (text.empty()) throw ConfigError(flag + ": the name of a " + (is_folder ? "folder" : "file") + " is missing");
    path = text;
  };
  return add_text(app, flag, take, is_folder ? "DIR" : "FILE", description);
}

CLI::Option* add_data(CLI::App& app, const std::string& flag, std::string& data, const std::string& description) {
  const auto join = [&data, flag, given = false](const std::vector<std::string>& words) mutable {
    const std::string text = fmt::format("{}", fmt::join(words, " "));
    if (text.empty()) throw ConfigError(flag + ": the name of a file is missing");
    if (given) throw ConfigError(fmt::format("{0}: is given twice, {1} and {2}; {3}", flag, data, text, kOneOfData));
    if (words.size() > 1 && words.front().find(':') == std::string::npos) {
      throw ConfigError(fmt::format("{}: {} words without weights, {}; {}", flag, words.size(), text, kOneOfData));
    }
    data = text;
    given = true;
  };
  return app.add_option_function<std::vector<std::string>>(flag, join, description)
      ->type_name("DATA")
      // An option keeps only the last occurrence otherwise, and a forgotten first file would be ignored in silence.
      ->trigger_on_parse();  // so that each occurrence is seen
}

CLI::Option* add_word(CLI::App& app, const std::string& flag, std::vector<std::string> names,
                      std::function<void(const std::string&)> take, const std::string& description) {
  const std::string listed = fmt::format("{}", fmt::join(names, "|"));
  return add_text(
      app, flag,
      [flag, names = std::move(names), take = std::move(take)](const std::string& word) {
        take(name_for(flag, word, names));
      },
      listed, description);
}

void require_effect(const CLI::App& command, std::initializer_list<const char*> flags, bool has_effect,
                    const char* purpose) {
  if (has_effect) return;
  for (const char* flag : flags) {
    if (command.count(flag) == 0) continue;
    throw ConfigError(fmt::format("{} is for {}; give that too, or leave it out", flag, purpose));
  }
}

void warn_about_surplus_threads(const char* flag, std::int64_t threads, std::int64_t processes) {
  const int cores = available_cores();
  // A number out of range is refused elsewhere; one thread is the least.
  if (threads <= 1 || threads > kMaxThreads || threads * processes <= cores) return;
  messages().write(fmt::format("chimera: {} {}: {}{} threads share {}, and wait for each other\n", flag, threads,
                               processes > 1 ? fmt::format("{} times ", processes) : "", threads,
                               cores == 1 ? "1 core" : fmt::format("{} cores", cores)));
}

std::vector<std::string_view> split_at_commas(std::string_view list) {
  std::vector<std::string_view> parts;
  for (auto comma = list.find(','); comma != std::string_view::npos; comma = list.find(',')) {
    parts.push_back(list.substr(0, comma));
    list.remove_prefix(comma + 1);
  }
  parts.push_back(list);
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

}  // namespace chimera::apps
