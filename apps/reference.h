#pragma once

// Man pages, shell completions and pages of the book, written from the flags of --help-all. entry_of() reads all
// subcommands into plain data once; each to_ function and each completion prints that data in one language.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace chimera::apps {

struct FlagEntry {
  std::vector<std::string> names;  ///< `--stages`, or `NAME` for an argument
  std::string takes;               ///< kind of value, such as `N` or `text|json`; empty: the flag takes no value
  std::string description;
  bool is_argument = false;
  std::vector<std::string> known = {};  ///< suggested values, such as schedules or models; others are possible

  /// Returns all values, such as `text` and `json`; empty if others are allowed.
  [[nodiscard]] std::vector<std::string> words() const;
  /// Returns words() or, if there are none, `known`.
  [[nodiscard]] std::vector<std::string> offered() const;
  [[nodiscard]] bool takes_file() const;
};

struct FlagGroup {
  std::string heading;
  std::vector<FlagEntry> flags;
};

struct CommandEntry {
  std::string name;  ///< `chimera train`
  std::string description;
  std::string usage;  ///< `chimera train [FLAGS]`
  std::vector<FlagGroup> groups;
  std::vector<std::string> examples;    ///< shell lines
  std::vector<std::string> paragraphs;  ///< text below the examples
  std::vector<CommandEntry> subcommands;

  [[nodiscard]] std::string last_name() const { return name.substr(name.rfind(' ') + 1); }
};

[[nodiscard]] CommandEntry entry_of(const CLI::App& program);

/// The page includes subcommands.
[[nodiscard]] std::string to_man_page(const CommandEntry& command, const std::string& version);
[[nodiscard]] std::string to_markdown(const CommandEntry& command);
[[nodiscard]] std::string bash_completion(const CommandEntry& program);
[[nodiscard]] std::string zsh_completion(const CommandEntry& program);
[[nodiscard]] std::string fish_completion(const CommandEntry& program);

}  // namespace chimera::apps
