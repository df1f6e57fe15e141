#include "help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>
#include <string_view>

namespace chimera::apps {
namespace {

constexpr std::size_t kFewestColumns = 80;
constexpr std::size_t kMostColumns = 120;
constexpr std::size_t kUsualColumns = 100;
constexpr std::size_t kNameColumns = 28;  // width of flag names with their values
constexpr std::string_view kComment = "   # ";

/// Splits a text at blanks, for a shell line only outside quotes.
std::vector<std::string> words_of(const std::string& text, bool is_shell) {
  std::vector<std::string> words;
  std::string word;
  bool quoted = false;
  for (const char c : text) {
    if (is_shell && c == '\'') quoted = !quoted;
    if (c != ' ' || quoted) {
      word += c;
    } else if (!word.empty()) {
      words.push_back(std::move(word));
      word.clear();
    }
  }
  if (!word.empty()) words.push_back(std::move(word));
  return words;
}

/// Splits a shell line; a flag and its value stay together.
std::vector<std::string> flags_of_line(const std::string& line) {
  std::vector<std::string> parts;
  bool lacks_value = false;
  for (std::string& word : words_of(line, true)) {
    const bool is_flag = word.starts_with("--");
    if (lacks_value && !is_flag) {
      parts.back() += " " + word;
    } else {
      parts.push_back(std::move(word));
    }
    lacks_value = is_flag;
  }
  return parts;
}

/// Wraps lines at `columns`; only a longer word exceeds it. All lines but the last end in `continuation`.
std::vector<std::string> wrapped(const std::vector<std::string>& words, std::size_t columns,
                                 std::string_view continuation = "") {
  std::vector<std::string> lines;
  std::string line;
  for (const std::string& word : words) {
    if (!line.empty() && line.size() + 1 + word.size() + continuation.size() > columns) {
      lines.push_back(line.append(continuation));
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  lines.push_back(line);
  return lines;
}

std::string paragraph(const std::string& text, std::size_t columns) {
  std::string result;
  for (const std::string& line : wrapped(words_of(text, false), columns)) result += line + "\n";
  return result;
}

std::size_t help_columns(int descriptor) {
  std::size_t columns = 0;
  if (const char* given = std::getenv("COLUMNS"); given != nullptr) {
    const std::string_view text = given;
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  winsize size{};
  if (columns == 0 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? kUsualColumns : std::clamp(columns, kFewestColumns, kMostColumns);
}

}  // namespace

HelpFormatter::HelpFormatter(std::size_t columns) : columns_(columns) {
  label("Positionals", "Arguments");
  label("OPTIONS", "FLAGS");
}

std::string HelpFormatter::make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const {
  return make_description(app) + make_usage(app, std::move(name)) + make_positionals(app) + groups(app) +
         make_subcommands(app, mode) + "\n" + make_footer(app);
}

std::string HelpFormatter::make_description(const CLI::App* app) const {
  return paragraph(app->get_description(), columns_);
}

std::string HelpFormatter::groups(const CLI::App* app) const {
  std::vector<std::string> names = app->get_groups();
  std::stable_partition(names.begin(), names.end(), [](const std::string& group) { return group != heading::kHelp; });
  std::string text;
  for (const std::string& group : names) {
    const auto options = app->get_options(
        [&](const CLI::Option* option) { return option->get_group() == group && option->nonpositional(); });
    if (!group.empty() && !options.empty()) text += make_group(group, false, options);
  }
  return text;
}

std::string HelpFormatter::make_option(const CLI::Option* option, bool is_positional) const {
  if (is_positional) return beside(make_option_name(option, true), option->get_description());
  const std::string takes = make_option_opts(option);
  return beside(make_option_name(option, false) + takes.substr(0, takes.find(':')), option->get_description());
}

std::string HelpFormatter::make_subcommand(const CLI::App* command) const {
  return beside(command->get_name(), command->get_description());
}

std::string HelpFormatter::make_footer(const CLI::App* app) const {
  std::istringstream lines(app->get_footer());
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    text += line.starts_with("  ") ? example(line.substr(2)) : paragraph(line, columns_);
  }
  return text;
}

std::string HelpFormatter::beside(const std::string& name, const std::string& text) const {
  std::string result = "  " + name;
  if (result.size() + 2 > kNameColumns) {
    result += "\n" + std::string(kNameColumns, ' ');
  } else {
    result.resize(kNameColumns, ' ');
  }
  const auto lines = wrapped(words_of(text, false), columns_ - kNameColumns);
  for (std::size_t i = 0; i < lines.size(); ++i)
    result += (i == 0 ? "" : std::string(kNameColumns, ' ')) + lines[i] + "\n";
  return result;
}

std::string HelpFormatter::example(const std::string& line) const {
  if (line.size() + 2 <= columns_) return "  " + line + "\n";
  const std::size_t comment = line.find(kComment);
  std::string text;
  if (comment != std::string::npos) text = "  " + line.substr(comment + kComment.size() - 2) + "\n";
  const auto parts = wrapped(flags_of_line(line.substr(0, comment)), columns_ - 4, " \\");
  for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "  " : "    ") + parts[i] + "\n";
  return text;
}

void begin_group(CLI::App& command, const char* group) { command.option_defaults()->group(group); }

void lay_out_help(CLI::App& program, int descriptor) {
  const auto formatter = std::make_shared<HelpFormatter>(help_columns(descriptor));
  std::vector<CLI::App*> commands = {&program};
  while (!commands.empty()) {
    CLI::App* command = commands.back();
    commands.pop_back();
    for (CLI::App* inner : command->get_subcommands([](CLI::App*) { return true; })) commands.push_back(inner);
    command->formatter(formatter);
    for (CLI::Option* option : command->get_options()) {
      const bool is_meta = option == command->get_help_ptr() || option == command->get_version_ptr();
      if (is_meta) option->group(heading::kHelp);
    }
  }
}

}  // namespace chimera::apps
