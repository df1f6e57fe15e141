#include "flag_values.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <toml++/toml.h>

#include <algorithm>
#include <optional>

#include "core/choices.h"
#include "core/error.h"
#include "core/files.h"
#include "core/printable.h"

namespace chimera::apps {
namespace {

/// Parses TOML. Throws ConfigError with file, line and reason.
toml::table parse(const std::string& text, const std::string& path) {
  try {
    return toml::parse(text, path);
  } catch (const toml::parse_error& error) {
    throw ConfigError(
        fmt::format("{}:{}: {}", path, error.source().begin.line, printable(error.description(), kParserMessage)));
  }
}

/// Returns the legal keys: all long flags except those about the command line.
std::vector<std::string> keys_of(const CLI::App& command) {
  std::vector<std::string> keys;
  for (const CLI::Option* option : command.get_options()) {
    for (const std::string& name : option->get_lnames()) {
      if (name != "help" && name != "config" && name != "recipe") keys.push_back(name);
    }
  }
  return keys;
}

/// Returns the value of a key; nullopt for a flag without value that is false.
std::optional<std::string> value_of(const std::string& key, const toml::node& node, const CLI::Option& option,
                                    const std::string& at) {
  const bool takes_value = option.get_items_expected_max() > 0;
  if (const auto truth = node.value_exact<bool>()) {
    return *truth || takes_value ? std::optional(fmt::format("{}", *truth)) : std::nullopt;
  }
  if (!takes_value) throw ConfigError(fmt::format("{}: '{}' is either true or false", at, key));
  if (const auto text = node.value_exact<std::string>()) return *text;
  if (const auto number = node.value_exact<std::int64_t>()) return fmt::format("{}", *number);
  if (const auto number = node.value_exact<double>()) return fmt::format("{}", *number);
  throw ConfigError(fmt::format("{}: '{}' must be a string, a number, true or false", at, key));
}

}  // namespace

void set_flag(CLI::App& command, const std::string& name, const std::string& value) {
  CLI::Option& option = *command.get_option("--" + name);
  option.clear();
  option.add_result(value);
  option.run_callback();
}

void merge_config_text(CLI::App& command, const std::string& text, const std::string& path) {
  const std::vector<std::string> keys = keys_of(command);
  for (const auto& [name, node] : parse(text, path)) {
    const std::string key(name.str());
    const std::string at = fmt::format("{}:{}", path, node.source().begin.line);
    if (std::ranges::count(keys, key) == 0)
      throw ConfigError(fmt::format("{}: {}", at, unknown_name("key", key, keys)));
    const CLI::Option& option = *command.get_option("--" + key);
    const auto value = value_of(key, node, option, at);
    if (value && option.count() == 0) set_flag(command, key, *value);
  }
}

void merge_config(CLI::App& command, const std::string& path) { merge_config_text(command, read_whole(path), path); }

std::vector<std::string> given_words(const CLI::App& command) {
  std::vector<std::string> words;
  for (const CLI::Option* option : command.get_options()) {
    if (option->count() == 0) continue;
    const std::string flag = "--" + option->get_lnames().front();
    // a flag of several words, such as --data, joins them with blanks
    const std::string value = fmt::format("{}", fmt::join(option->reduced_results(), " "));
    if (value.empty()) {
      words.insert(words.end(), {flag, value});  // `--flag=` would take the next word
    } else {
      words.push_back(fmt::format("{}={}", flag, value));
    }
  }
  return words;
}

}  // namespace chimera::apps
