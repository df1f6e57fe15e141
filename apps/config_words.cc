#include "config_words.h"

#include <fmt/format.h>
#include <toml++/toml.h>

#include <algorithm>

#include "core/choices.h"
#include "core/error.h"
#include "core/files.h"
#include "core/printable.h"

namespace chimera::apps {
namespace {

/// Throws ConfigError with file, line and reason.
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

/// Returns `--key=value`, `--key` for a flag without value, or nothing if that is false.
std::string word_of(const std::string& key, const toml::node& node, const CLI::Option& option, const std::string& at) {
  const bool takes_value = option.get_items_expected_max() > 0;
  if (const auto truth = node.value_exact<bool>()) {
    if (takes_value) return fmt::format("--{}={}", key, *truth);
    return *truth ? "--" + key : "";
  }
  if (!takes_value) throw ConfigError(fmt::format("{}: '{}' is either true or false", at, key));
  if (const auto text = node.value_exact<std::string>()) return fmt::format("--{}={}", key, *text);
  if (const auto number = node.value_exact<std::int64_t>()) return fmt::format("--{}={}", key, *number);
  if (const auto number = node.value_exact<double>()) return fmt::format("--{}={}", key, *number);
  throw ConfigError(fmt::format("{}: '{}' must be a string, a number, true or false", at, key));
}

}  // namespace

std::vector<std::string> config_words_of(const std::string& text, const std::string& path, const CLI::App& command) {
  const std::vector<std::string> keys = keys_of(command);
  std::vector<std::string> words;
  for (const auto& [name, node] : parse(text, path)) {
    const std::string key(name.str());
    const std::string at = fmt::format("{}:{}", path, node.source().begin.line);
    if (std::ranges::count(keys, key) == 0)
      throw ConfigError(fmt::format("{}: {}", at, unknown_name("key", key, keys)));
    const std::string word = word_of(key, node, *command.get_option("--" + key), at);
    if (!word.empty()) words.push_back(word);
  }
  return words;
}

std::vector<std::string> config_words(const std::string& path, const CLI::App& command) {
  return config_words_of(read_whole(path), path, command);
}

}  // namespace chimera::apps
