// Formats and output files of commands. Most of it protects files: an output must not be an input of the same command,
// two outputs must not be one file, and a file that exists is replaced only with --overwrite. Arguments are compared as
// files, by whatever path they are named.

#include "flags/outputs.h"

#include <unistd.h>
#include <algorithm>
#include <cstring>
#include <iostream>
#include <memory>

#include "core/files.h"
#include "core/mapped.h"
#include "core/reject.h"
#include "core/terminal.h"
#include "flags/values.h"
#include "help.h"
#include "render/text_table.h"

namespace chimera::apps {
namespace {

bool names_this(const std::string& path, const std::string& word) {
  return path_exists(word) && is_same_file(path, word);
}

/// Includes paths in `--data=FILE`, lists, mixtures and several words.
std::vector<std::string> names_in(std::string word) {
  // The word as a whole comes first, as a path may contain these signs. Then each piece between the signs: `0.5:a.txt`
  // also names a.txt.
  std::vector<std::string> names = {word};
  std::ranges::replace_if(
      word, [](char letter) { return std::strchr(" =:", letter) != nullptr; }, ',');
  for (const std::string_view piece : split_at_commas(word)) names.emplace_back(piece);
  return names;
}

void require_no_input(const CLI::Option& output, const std::string& path, const std::vector<std::string>& words) {
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const std::string folder = parent.empty() ? "." : parent;
  // A command that reads a folder reads files of such names in it. It does not read other files there, such as
  // pictures.
  constexpr std::array kEndings = {"config.json",  "manifest.json", "tokenizer.json", "vocab.json",
                                   "_map.json",    "_tokens.json",  "metrics.jsonl",  ".index.json",
                                   ".safetensors", ".bin",          ".idx",           ".txt"};
  const bool may_be_read =
      path_exists(path) && std::ranges::any_of(kEndings, [&](auto end) { return path.ends_with(end); });
  const auto refuse = [&](const std::string& why) {
    reject("{} {}: {}; give another one", output.get_name(), path, why);
  };
  for (const std::string& word : words) {
    for (const std::string& name : names_in(word)) {
      // Names the same file by any path: the file itself is compared, not the text.
      if (names_this(path, name)) refuse("another argument names this file");
      // A number is the value of some flag, even if a folder has that name.
      if (!may_be_read || parse_number<double>(name) || !names_this(folder, name)) continue;
      refuse(fmt::format("exists in the folder {}, which another argument names", name));
    }
  }
}

/// Several flags may share a file such as /dev/null.
bool is_device(const std::string& path) { return path_exists(path) && !is_file(path); }

/// Returns an empty path if the option is not given or names standard output.
std::string named_file(const CLI::Option& option) {
  // CLI11 keeps all words of a flag; the last one counts.
  const std::string path = option.count() == 0 ? "" : option.results().back();
  return path == "-" ? "" : path;
}

/// Throws ConfigError for the ending of a picture that nothing here writes.
void require_known_picture(const CLI::Option& output, const std::string& path) {
  constexpr std::array kOthers = {".png", ".jpg", ".jpeg", ".gif", ".pdf", ".webp"};
  if (std::ranges::none_of(kOthers, [&](const char* ending) { return path.ends_with(ending); })) return;
  reject("{} {}: pictures are SVG; give a name that ends in .svg", output.get_name(), path);
}

void require_only_output(const CLI::App& app, const CLI::Option& output, const std::vector<CLI::Option*>& outputs) {
  const std::string path = named_file(output);
  if (is_device(path)) return;
  for (const CLI::Option* other : app.get_options()) {
    if (other == &output || other->count() == 0) continue;
    // An argument that is no output is an input.
    if (std::ranges::find(outputs, other) == outputs.end())
      require_no_input(output, path, other->results());
    else if (is_same_file(path, other->results().back()))
      reject("{} {}: {} names this file; give another one", output.get_name(), path, other->get_name());
  }
  require_no_input(output, path, app.remaining());
}

}  // namespace

CLI::Option* add_format(CLI::App& app, Format& format, const std::vector<Format>& formats) {
  begin_group(app, heading::kOutput);
  format = formats.front();
  const auto names = mapped(formats, [](Format one) { return to_text(one); });
  return add_word(
      app, "--format", names, [&format](const std::string& word) { format = parse_named<Format>("--format", word); },
      fmt::format("output format (default {})", names.front()));
}

CLI::Option* add_format_and_output(CLI::App& app, Format& format, const std::vector<Format>& formats,
                                   std::string& output) {
  CLI::Option* given = add_format(app, format, formats);
  CLI::Option* file =
      add_path(app, "--output", output, "output file instead of standard output; its ending sets the format");
  set_format_by_extension(*file, *given, format, formats);
  add_output_checks(app, {file});
  return given;
}

void set_format_by_extension(CLI::Option& file, const CLI::Option& given, Format& format,
                             const std::vector<Format>& formats) {
  // A --format on the command line counts, whatever the ending says.
  file.each([&given, &format, formats](const std::string& path) {
    const std::string ending = std::filesystem::path(path).extension().string();
    for (const Format one : formats)
      if (given.count() == 0 && ending == fmt::format(".{}", to_text(one))) format = one;
  });
}

void add_output_checks(CLI::App& app, const std::vector<CLI::Option*>& outputs, const CLI::Option* continuing) {
  const auto overwrites = std::make_shared<bool>(false);
  app.add_flag("--overwrite", *overwrites, "replace output files that exist");
  // After parsing, when all arguments are known, and before the command runs for an hour.
  app.parse_complete_callback([&app, outputs, continuing, overwrites] {
    for (const CLI::Option* output : outputs) {
      const std::string path = named_file(*output);
      if (path.empty()) continue;
      require_known_picture(*output, path);
      require_only_output(app, *output, outputs);
      // `sweep --train` goes on with the table that an interrupted sweep has left.
      const bool is_continued = output == outputs.front() && continuing != nullptr && continuing->count() > 0;
      if (!is_continued) require_unused(output->get_name(), path, *overwrites);
    }
  });
}

void write_output(const std::string& path, const std::string& text, Format format) {
  if (!path.empty() && path != "-") return write_whole(path, text);
  // Only what a person reads on a terminal is fitted to its width. Without a terminal, the width is 0: unlimited.
  const bool fits = format == Format::Text && path.empty();
  std::cout << (fits ? fitted(text, terminal_columns(STDOUT_FILENO)) : text) << std::flush;
  if (!std::cout) throw Error("standard output cannot be written");
}

}  // namespace chimera::apps
