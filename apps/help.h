#pragma once

// The layout of --help: flags and commands under headings, at the width of the terminal. If a page would be too long,
// it shows only the common flags, and --help-all shows all flags. While a command adds its flags, it calls
// begin_group() with one of the headings below, and set_common_flags(). run_program() calls set_up_help() before it
// parses the command line.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Formats the help of a command:
/// - flags under the headings of begin_group(), --help last;
/// - descriptions in a separate column;
/// - each line of the footer as a paragraph. Lines that start with two spaces are shell examples. A line that starts
///   with "More: " lists documents; the formatter adds --help-all and the man page to it.
/// If all flags need more than kMaxLines lines at a width of kUsualColumns, --help shows only the common flags.
class HelpFormatter : public CLI::Formatter {
 public:
  static constexpr std::size_t kMaxLines = 60;
  static constexpr std::size_t kUsualColumns = 100;

  /// `common` are the flags of a shortened page; empty: always show all flags.
  explicit HelpFormatter(std::vector<const CLI::Option*> common = {});
  void set_columns(std::size_t columns) { columns_ = columns; }

  [[nodiscard]] std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  [[nodiscard]] std::string make_description(const CLI::App* app) const override;
  [[nodiscard]] std::string make_option(const CLI::Option* option, bool is_positional) const override;
  [[nodiscard]] std::string make_subcommands(const CLI::App* app, CLI::AppFormatMode mode) const override;
  [[nodiscard]] std::string make_subcommand(const CLI::App* command) const override;

 private:
  [[nodiscard]] std::string full_help(const CLI::App* app, const std::string& name) const;
  /// Returns the number of flags that --help omits.
  [[nodiscard]] std::size_t num_omitted(const CLI::App* app, const std::string& name) const;
  /// With `all`, the help lists every flag that is not hidden, else only common flags and --help.
  [[nodiscard]] bool is_shown(const CLI::Option* option, bool all) const;
  [[nodiscard]] std::string groups(const CLI::App* app, bool all) const;
  [[nodiscard]] std::string footer(const CLI::App* app, std::size_t omitted) const;
  /// Returns `name` on the left and `text` to its right, or below a long name.
  [[nodiscard]] std::string in_two_columns(const std::string& name, const std::string& text) const;
  [[nodiscard]] std::string example(const std::string& line) const;

  std::vector<const CLI::Option*> common_;
  std::size_t columns_ = kUsualColumns;
};

namespace heading {
inline constexpr const char* kModel = "Model";
inline constexpr const char* kData = "Data";
inline constexpr const char* kText = "Text";
inline constexpr const char* kSampling = "Sampling";
inline constexpr const char* kSchedule = "Schedule and shape";
inline constexpr const char* kNumbers = "Precision and determinism";
inline constexpr const char* kMemory = "Memory";
inline constexpr const char* kPlanning = "Planning";
inline constexpr const char* kMeasuring = "Measuring";
inline constexpr const char* kRunning = "Running";
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kHelp = "Help";
}  // namespace heading

/// Returns the command with the names of its parents, for example `chimera checkpoint list`.
[[nodiscard]] std::string full_command_name(const CLI::App& command);

/// Returns the words of the text in lines of at most `columns`, each with a line end.
[[nodiscard]] std::string paragraph(const std::string& text, std::size_t columns);

/// Puts the flags added from now on under this heading.
void begin_group(CLI::App& command, const char* group);

/// Chooses the flags that --help shows if the page with all flags would be too long (HelpFormatter::kMaxLines).
/// `names` have dashes. Throws CLI::OptionNotFound for an unknown name.
void set_common_flags(CLI::App& command, const std::vector<std::string>& names);

/// Gives `program` and all its subcommands a HelpFormatter, sets the width of their help, and puts --help, --help-all
/// and --version under the heading Help. The width is the environment variable COLUMNS or the width of the terminal
/// `descriptor`, limited to 80 to 120; 100 if neither is known.
void set_up_help(CLI::App& program, int descriptor);

}  // namespace chimera::apps
