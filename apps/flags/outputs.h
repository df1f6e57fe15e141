#pragma once

// Where a command writes, and in which format: --format, --output and --overwrite. The ending of an output file sets
// the format. An output never replaces an input, another output, or a file that exists, unless the user asks for it.

#include <CLI/CLI.hpp>
#include <array>
#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

#include "core/choices.h"

namespace chimera {

namespace apps {

enum class Format : std::uint8_t { Text, Json, Csv, Svg, Html, Perfetto, Costs };

}  // namespace apps

template <>
inline constexpr auto kNames<apps::Format> = std::to_array<Named<apps::Format>>({{apps::Format::Text, "text"},
                                                                                 {apps::Format::Json, "json"},
                                                                                 {apps::Format::Csv, "csv"},
                                                                                 {apps::Format::Svg, "svg"},
                                                                                 {apps::Format::Html, "html"},
                                                                                 {apps::Format::Perfetto, "perfetto"},
                                                                                 {apps::Format::Costs, "costs"}});

namespace apps {

/// The first choice is the default.
CLI::Option* add_format(CLI::App& app, Format& format, const std::vector<Format>& formats);
/// Adds --format, --output and --overwrite, as follow_ending() describes. Returns --format.
CLI::Option* add_format_and_output(CLI::App& app, Format& format, const std::vector<Format>& formats,
                                   std::string& output);
/// Sets the format by the ending of the output file, such as .json, unless --format (`given`) is there.
void follow_ending(CLI::Option& file, const CLI::Option& given, Format& format, const std::vector<Format>& formats);

/// Adds --overwrite, and a check of these outputs after the command line is parsed. The check throws ConfigError if
/// - another argument names the same file;
/// - the output exists, its name is that of a model, tokenizer, text or metrics file, and another argument names its
///   folder;
/// - the output is a file that is not empty, and --overwrite is not given.
/// If `continuing` is given on the command line, the first output may exist, because the command continues it. Call
/// once per command.
void guard_outputs(CLI::App& app, const std::vector<CLI::Option*>& outputs, const CLI::Option* continuing = nullptr);

/// Writes as write_whole() does or, if `path` is empty or "-", to standard output. Throws Error if standard output
/// cannot be written.
void write_output(const std::string& path, const std::string& text);

/// Throws ConfigError if the file cannot be opened.
[[nodiscard]] std::ifstream open_input(const std::string& path);

}  // namespace apps

}  // namespace chimera
