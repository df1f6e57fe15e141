#pragma once

// Where a command writes, and in which format: --format, --output and --overwrite. The extension of an output file sets
// the format, unless --format is given. An output file never replaces an input or another output of the command. It
// replaces a file that exists only if --overwrite is given.

#include <CLI/CLI.hpp>

#include "core/choices.h"

namespace chimera {

namespace apps {

/// Formats of outputs. Perfetto is a trace for ui.perfetto.dev, and Costs a file for `simulate --costs`. Each command
/// offers some of them.
enum class Format : std::uint8_t { Text, Json, Csv, Svg, Html, Perfetto, Costs };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::Format> = in_order<apps::Format>("text", "json", "csv", "svg", "html", "perfetto",
                                                                    "costs");

namespace apps {

/// Arguments of a command that answers a request, the struct of its inputs (answers/door.h).
template <class Request>
struct RequestArguments {
  Request request;
  Format format = Format::Text;
  std::string output;  // of --output; empty: standard output
};

/// Adds --format with these choices under the heading Output; the first one is the default. Returns the option.
CLI::Option* add_format(CLI::App& app, Format& format, const std::vector<Format>& formats);
/// Adds --format, --output and --overwrite. The extension of the --output file sets the format
/// (set_format_by_extension()), and add_output_checks() checks the file. Returns the option --format.
CLI::Option* add_format_and_output(CLI::App& app, Format& format, const std::vector<Format>& formats,
                                   std::string& output);
/// Makes the option `file` (an output file) set `format` by its extension: out.json selects Format::Json. Extensions
/// that name none of `formats` change nothing. If the option `given` (--format) is on the command line, the extension
/// has no effect.
void set_format_by_extension(CLI::Option& file, const CLI::Option& given, Format& format,
                             const std::vector<Format>& formats);

/// Adds --overwrite, and a check of these outputs that runs after the command line is parsed. The check throws
/// ConfigError for an output if one of these is true:
/// - another argument names the same file, as an input or an output;
/// - the command may read the file: it exists, another argument names its folder, and its name ends like an input (such
///   as config.json, .safetensors, .bin or .txt);
/// - the file exists and is not empty, and --overwrite is not given. The first output may exist if the option
///   `continuing` (null: none) is on the command line, because the command then appends to it.
///
/// Call it once per command.
void add_output_checks(CLI::App& app, const std::vector<CLI::Option*>& outputs,
                       const CLI::Option* continuing = nullptr);

/// Writes `text` to the file `path`, or to standard output if `path` is empty or "-". A file is replaced atomically
/// (write_whole() in core/files.h). On a terminal, lines of Format::Text fit its width. Throws ConfigError if the file
/// cannot be written, Error if standard output cannot.
void write_output(const std::string& path, const std::string& text, Format format = Format::Json);

}  // namespace apps

}  // namespace chimera
