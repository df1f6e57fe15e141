#pragma once
// What --help looks like: flags in named groups, and no line longer than the terminal is wide (at least 80).

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

/// Lays out the help of a command:
/// - flags under the headings that begin_group() gave them, and --help last;
/// - descriptions in a column of their own, wrapped at spaces;
/// - of the footer, every line as a paragraph, except that lines that begin with two spaces are examples: shell lines
///   that stay whole, or are continued with a backslash where they are too long.
class HelpFormatter : public CLI::Formatter {
 public:
  explicit HelpFormatter(std::size_t columns);

  [[nodiscard]] std::string make_help(const CLI::App* app, std::string name, CLI::AppFormatMode mode) const override;
  [[nodiscard]] std::string make_description(const CLI::App* app) const override;
  [[nodiscard]] std::string make_option(const CLI::Option* option, bool is_positional) const override;
  [[nodiscard]] std::string make_subcommand(const CLI::App* command) const override;
  [[nodiscard]] std::string make_footer(const CLI::App* app) const override;

 private:
  [[nodiscard]] std::string groups(const CLI::App* app) const;
  /// `name` on the left, `text` beside it, or below it where the name is long.
  [[nodiscard]] std::string beside(const std::string& name, const std::string& text) const;
  [[nodiscard]] std::string example(const std::string& line) const;

  std::size_t columns_;
};

/// The headings under which flags stand, in the order in which a command adds them.
namespace heading {
inline constexpr const char* kModel = "Model";
inline constexpr const char* kData = "Data";
inline constexpr const char* kText = "Text";
inline constexpr const char* kSampling = "Sampling";
inline constexpr const char* kSchedule = "Schedule and shape";
inline constexpr const char* kParallelism = "Parallelism";
inline constexpr const char* kOptimisation = "Optimisation";
inline constexpr const char* kNumbers = "Precision and determinism";
inline constexpr const char* kMemory = "Memory";
inline constexpr const char* kCosts = "Costs";
inline constexpr const char* kLimits = "Limits";
inline constexpr const char* kSearch = "Search";
inline constexpr const char* kPlanning = "Planning";
inline constexpr const char* kMeasuring = "Measuring";
inline constexpr const char* kRunning = "Running";
inline constexpr const char* kCheckpoints = "Checkpoints";
inline constexpr const char* kOutput = "Output";
inline constexpr const char* kHelp = "Help";
}  // namespace heading

/// Puts the flags that are added to the command from now on under this heading.
void begin_group(CLI::App& command, const char* group);

/// Lays out the help of the program and its subcommands for a reader of `descriptor`. Its columns are those that the
/// environment variable COLUMNS says, else those of the terminal there, in either case 80 to 120; else 100.
void lay_out_help(CLI::App& program, int descriptor);

}  // namespace chimera::apps
