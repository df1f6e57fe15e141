// CLI11's formatter writes help as one long list. HelpFormatter overrides its parts: flags in groups and two columns, a
// shorter page of common flags for commands with many flags, and a footer whose lines are wrapped by their kind.

#include "help.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>
#include <memory>
#include <sstream>
#include <string_view>
#include <utility>
#include "core/mapped.h"

namespace chimera::apps {
namespace {

constexpr std::size_t kUsualColumns = 100;
constexpr std::size_t kFewestColumns = 80;
constexpr std::size_t kMaxColumns = 120;
constexpr std::size_t kNameColumns = 28;  // width of flag names with their values
constexpr std::string_view kComment = "   # ";
constexpr std::string_view kMore = "More: ";

struct CommandGroup {
  const char* heading;
  const char* names;
};
/// A build without LibTorch lacks the commands that need it.
constexpr std::array kCommandGroups = {
    CommandGroup{"Train and use models", "train generate evaluate export tokenize tokenizer"},
    CommandGroup{"Schedules", "schedules schedule simulate sweep search check"},
    CommandGroup{"Models, machines and plans", "model profile plan bench"},
    CommandGroup{"Runs", "top compare checkpoint diagnose"},
    CommandGroup{"Hosts", "launch env"},
    CommandGroup{"Learn", "demo playground"}};

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

/// Returns the words of a shell line, each flag with its value: a line break between them would be hard to read and
/// copy.
std::vector<std::string> flags_of_line(const std::string& line) {
  std::vector<std::string> parts;
  for (std::string& word : words_of(line, true)) {
    const bool is_value =
        !parts.empty() && parts.back().starts_with("--") && parts.back().find(' ') == std::string::npos;
    if (is_value && !word.starts_with("--"))
      parts.back() += " " + word;
    else
      parts.push_back(std::move(word));
  }
  return parts;
}

/// Only a word longer than `columns` exceeds it. All lines but the last end in `continuation`.
std::vector<std::string> wrapped(const std::vector<std::string>& words, std::size_t columns,
                                 std::string_view continuation = "") {
  std::vector<std::string> lines;
  std::string line;
  for (const std::string& word : words) {
    // The continuation needs room even on a line that will be the last, because that is not yet known.
    if (!line.empty() && line.size() + 1 + word.size() + continuation.size() > columns) {
      lines.push_back(line.append(continuation));
      line.clear();
    }
    line += (line.empty() ? "" : " ") + word;
  }
  lines.push_back(line);
  return lines;
}

std::size_t help_columns(int descriptor) {
  std::size_t columns = 0;
  // COLUMNS is not exported by most shells, so it is there only if the user or a test wants a width.
  if (const char* given = std::getenv("COLUMNS"); given != nullptr) {
    const std::string_view text = given;
    std::from_chars(text.data(), text.data() + text.size(), columns);
  }
  // A pipe has no width, so that help in a file has the usual one.
  winsize size{};
  if (columns == 0 && ::ioctl(descriptor, TIOCGWINSZ, &size) == 0) columns = size.ws_col;
  return columns == 0 ? kUsualColumns : std::clamp(columns, kFewestColumns, kMaxColumns);
}

/// Subcommands are on the page of their command.
std::string man_page(const CLI::App& command) {
  if (command.get_parent() == nullptr) return command.get_name();
  // As man pages of git: `man chimera-checkpoint`, not chimera-checkpoint-list.
  if (command.get_parent()->get_parent() != nullptr) return man_page(*command.get_parent());
  return man_page(*command.get_parent()) + "-" + command.get_name();
}

std::string read_more(const CLI::App& command, std::string_view documents, std::size_t omitted) {
  const std::string all =
      omitted == 0 ? "" : fmt::format("`{} --help-all` ({} more flags), ", full_command_name(command), omitted);
  return fmt::format("{}{}`man {}`, {}", kMore, all, man_page(command), documents);
}

/// Formats the help of a command:
/// - flags under the headings of begin_group(), --help last;
/// - descriptions in a separate column;
/// - each line of the footer as a paragraph. Lines that start with two spaces are shell examples. A line that starts
///   with "More: " lists documents; the formatter adds --help-all and the man page to it.
/// If the command has common flags (set_common_flags()), --help shows only these.
class HelpFormatter : public CLI::Formatter {
 public:
  /// `common` are the flags of a shortened page; empty: always show all flags.
  explicit HelpFormatter(std::vector<const CLI::Option*> common = {}) : common_(std::move(common)) {
    // Names of CLI11's own headings, which it looks up here.
    label("Positionals", "Arguments");
    label("OPTIONS", "FLAGS");
  }

  void set_columns(std::size_t columns) { columns_ = columns; }

  [[nodiscard]] std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override {
    return page(app, name, mode == CLI::AppFormatMode::All ? 0 : num_omitted(app));
  }

  [[nodiscard]] std::string make_description(const CLI::App* app) const override {
    return paragraph(app->get_description(), columns_);
  }

  [[nodiscard]] std::string make_option(const CLI::Option* option, bool is_positional) const override {
    if (is_positional) return in_two_columns(make_option_name(option, true), option->get_description());
    // CLI11 appends checks and REQUIRED to the type: `N:POSITIVE`. Messages say these if they are violated.
    const std::string takes = make_option_opts(option);
    return in_two_columns(make_option_name(option, false) + takes.substr(0, takes.find(':')),
                          option->get_description());
  }

  [[nodiscard]] std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override {
    if (app->get_parent() != nullptr) return CLI::Formatter::make_subcommands(app, mode);
    std::string text = "\nSubcommands:\n";
    for (const auto& [group, names] : kCommandGroups) {
      text += fmt::format(" {}\n", group);
      for (const std::string& name : words_of(names, false)) {
        const auto found = app->get_subcommands([&](const CLI::App* command) { return command->get_name() == name; });
        if (!found.empty()) text += make_subcommand(found.front());
      }
    }
    return text;
  }

  [[nodiscard]] std::string make_subcommand(const CLI::App* command) const override {
    return in_two_columns(command->get_name(), command->get_description());
  }

 private:
  /// `omitted` is the number of flags that the page omits. Commands that omit flags have no subcommands.
  [[nodiscard]] std::string page(const CLI::App* app, const std::string& name, std::size_t omitted) const {
    return make_description(app) + make_usage(app, name) + make_positionals(app) + groups(app, omitted == 0) +
           make_subcommands(app, CLI::AppFormatMode::Normal) + "\n" + footer(app, omitted);
  }

  /// Returns the number of flags that --help omits.
  [[nodiscard]] std::size_t num_omitted(const CLI::App* app) const {
    // A command without common flags shows all.
    if (common_.empty()) return 0;
    return app
        ->get_options([&](const CLI::Option* option) { return is_shown(option, true) && !is_shown(option, false); })
        .size();
  }

  /// With `all`, the help lists every flag that is not hidden, else only common flags and --help.
  [[nodiscard]] bool is_shown(const CLI::Option* option, bool all) const {
    // Hidden flags have an empty group.
    const bool is_flag = option->nonpositional() && !option->get_group().empty();
    return is_flag && (all || option->get_group() == heading::kHelp || std::ranges::count(common_, option) > 0);
  }

  [[nodiscard]] std::string groups(const CLI::App* app, bool all) const {
    std::vector<std::string> names = app->get_groups();
    // --help belongs to every command, so that its group comes last.
    std::stable_partition(names.begin(), names.end(), [](const std::string& group) { return group != heading::kHelp; });
    std::string text;
    for (const std::string& group : names) {
      const auto options = app->get_options(
          [&](const CLI::Option* option) { return option->get_group() == group && is_shown(option, all); });
      // Short help has no empty lines between groups.
      if (!options.empty()) text += make_group(group, false, options).substr(all || text.empty() ? 0 : 1);
    }
    return text;
  }

  [[nodiscard]] std::string footer(const CLI::App* app, std::size_t omitted) const {
    std::istringstream lines(app->get_footer());
    std::string text;
    for (std::string line; std::getline(lines, line);) {
      if (line.starts_with(kMore)) line = read_more(*app, line.substr(kMore.size()), omitted);
      text += line.starts_with("  ") ? example(line.substr(2)) : paragraph(line, columns_);
    }
    return text;
  }

  /// Returns `name` on the left and `text` to its right, or below a long name.
  [[nodiscard]] std::string in_two_columns(const std::string& name, const std::string& text) const {
    std::string result = "  " + name;
    // A long name has a line of its own, and its text begins below it.
    if (result.size() + 2 > kNameColumns)
      result += "\n" + std::string(kNameColumns, ' ');
    else
      result.resize(kNameColumns, ' ');
    const auto lines = wrapped(words_of(text, false), columns_ - kNameColumns);
    for (std::size_t i = 0; i < lines.size(); ++i)
      result += (i == 0 ? "" : std::string(kNameColumns, ' ')) + lines[i] + "\n";
    return result;
  }

  [[nodiscard]] std::string example(const std::string& line) const {
    if (line.size() + 2 <= columns_) return "  " + line + "\n";
    // An example that does not fit beside its comment gets the comment as a line above it, and is then continued with
    // backslashes, so that it can still be copied.
    const std::size_t comment = line.find(kComment);
    std::string text;
    // kComment ends in "# ", which stays in front of the words.
    if (comment != std::string::npos) text = "  " + line.substr(comment + kComment.size() - 2) + "\n";
    const auto parts = wrapped(flags_of_line(line.substr(0, comment)), columns_ - 4, " \\");
    for (std::size_t i = 0; i < parts.size(); ++i) text += (i == 0 ? "  " : "    ") + parts[i] + "\n";
    return text;
  }

  std::vector<const CLI::Option*> common_;
  std::size_t columns_ = kUsualColumns;
};

/// Gives the command and all commands below it a formatter.
void set_formatters(CLI::App& command, std::size_t columns) {
  // A formatter of its own, made by set_common_flags(), stays. All others get one, as CLI11 copies the formatter of a
  // parent only when a subcommand is added.
  auto formatter = std::dynamic_pointer_cast<HelpFormatter>(command.get_formatter());
  if (formatter == nullptr) formatter = std::make_shared<HelpFormatter>();
  formatter->set_columns(columns);
  command.formatter(formatter);
  // The const overloads are the only accessors of these flags.
  const CLI::App& made = command;
  const std::array meta = {made.get_help_ptr(), made.get_help_all_ptr(), made.get_version_ptr()};
  for (CLI::Option* option : command.get_options())
    if (std::ranges::count(meta, option) > 0) option->group(heading::kHelp);
  for (CLI::App* inner : command.get_subcommands([](CLI::App*) { return true; })) set_formatters(*inner, columns);
}

}  // namespace

std::string paragraph(const std::string& text, std::size_t columns) {
  std::string result;
  for (const std::string& line : wrapped(words_of(text, false), columns)) result += line + "\n";
  return result;
}

std::string full_command_name(const CLI::App& command) {
  if (command.get_parent() == nullptr) return command.get_name();
  return full_command_name(*command.get_parent()) + " " + command.get_name();
}

void begin_group(CLI::App& command, const char* group) { command.option_defaults()->group(group); }

void set_common_flags(CLI::App& command, const std::vector<std::string>& names) {
  command.formatter(std::make_shared<HelpFormatter>(
      mapped(names, [&](const std::string& name) -> const CLI::Option* { return command.get_option(name); })));
}

void set_up_help(CLI::App& program, int descriptor) { set_formatters(program, help_columns(descriptor)); }

}  // namespace chimera::apps
