#include "flags/values.h"

#include <fmt/ranges.h>
#include <utility>

#include "core/cgroup.h"
#include "core/complete_name.h"
#include "core/console.h"
#include "core/counted.h"
#include "core/files.h"
#include "core/reject.h"

namespace chimera::apps {
namespace {

constexpr const char* kOneOfData =
    "give one file or folder, a mixture such as 0.5:a 0.5:b, or quote a name with blanks";

}  // namespace

void complete_names(CLI::Option* option, std::vector<std::string> names) {
  option->transform([names = std::move(names)](const std::string& word) {
    // No name of a list contains a slash or a dot.
    const bool is_path = word.find_first_of("/.") != std::string::npos || path_exists(word);
    return is_path ? word : complete_name(word, names);
  });
}

CLI::Option* add_text(CLI::App& app, const std::string& flag, std::function<void(const std::string&)> take,
                      const std::string& type, const std::string& description) {
  return app.add_option_function<std::string>(flag, std::move(take), description)->type_name(type);
}

CLI::Option* add_string(CLI::App& app, const std::string& flag, std::string& value, const std::string& type,
                        const std::string& description) {
  return add_text(
      app, flag, [&value](const std::string& text) { value = text; }, type, description);
}

CLI::Option* add_number(CLI::App& app, const std::string& flag, double& value, const std::string& description,
                        double least) {
  return add_text(
      app, flag, [&value, flag, least](const std::string& text) { value = parse_amount(flag, text, least); }, "X",
      description);
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

// A mixture such as `0.5:a 0.5:b` may be given as one quoted word or as several. Both become one text here, which
// parse_mixture() of data/mixture.h reads.
CLI::Option* add_data(CLI::App& app, const std::string& flag, std::string& data, const std::string& description) {
  const auto join = [&data, flag, given = false](const std::vector<std::string>& words) mutable {
    const std::string text = fmt::format("{}", fmt::join(words, " "));
    if (text.empty()) throw ConfigError(flag + ": the name of a file is missing");
    if (given) reject("{0}: is given twice, {1} and {2}; {3}", flag, data, text, kOneOfData);
    if (words.size() > 1 && words.front().find(':') == std::string::npos)
      reject("{}: {} words without weights, {}; {}", flag, words.size(), text, kOneOfData);
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
    reject("{} is for {}; give that too, or leave it out", flag, purpose);
  }
}

void warn_about_surplus_threads(const char* flag, std::int64_t threads, std::int64_t processes) {
  const int cores = available_cores();
  // A number out of range is refused elsewhere; one thread is the least.
  if (threads <= 1 || threads > kMaxThreads || threads * processes <= cores) return;
  print_message("{} {}: {}{} threads share {}, and wait for each other", flag, threads,
                processes > 1 ? fmt::format("{} times ", processes) : "", threads, counted(cores, "core"));
}

}  // namespace chimera::apps
