#pragma once

// The layout of --help: flags and commands under headings, at the width of the terminal. If a page would be too long,
// it shows only the common flags, and --help-all shows all flags. While a command adds its flags, it calls
// begin_group() with one of the headings below, and set_common_flags(). run_program() calls set_up_help() before it
// parses the command line.

#include <CLI/CLI.hpp>

#include <string>
#include <vector>

namespace chimera::apps {

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

/// Chooses the flags that --help shows, for a command whose page with all flags would be too long. `names` have dashes.
/// Throws CLI::OptionNotFound for an unknown name.
void set_common_flags(CLI::App& command, const std::vector<std::string>& names);

/// Gives `program` and all its subcommands a formatter, sets the width of their help, and puts --help, --help-all
/// and --version under the heading Help. The width is the environment variable COLUMNS or the width of the terminal
/// `descriptor`, limited to 80 to 120; 100 if neither is known.
void set_up_help(CLI::App& program, int descriptor);

}  // namespace chimera::apps
