#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

// What the program says of its subcommands and flags, as a value: man pages, completions of shells and the pages of the
// book are written from it, so that none of them can differ from --help.

namespace chimera::apps {

/// A flag or an argument.
struct FlagEntry {
  std::vector<std::string> names;  ///< `--stages`, or `NAME` of an argument
  std::string takes;               ///< `N`, `text|json`; empty where it takes nothing
  std::string description;
  bool is_argument = false;
  std::vector<std::string> known = {};  ///< of names that it takes those that the program knows: schedules, models

  /// The words that it takes, where these are all: `text`, `json`.
  [[nodiscard]] std::vector<std::string> words() const;
  /// What a shell should offer: words(), or the names that are known.
  [[nodiscard]] std::vector<std::string> offered() const;
  /// Whether a shell should offer files.
  [[nodiscard]] bool takes_file() const;
};

/// Flags under one heading.
struct FlagGroup {
  std::string heading;
  std::vector<FlagEntry> flags;
};

/// The program, or a subcommand.
struct CommandEntry {
  std::string name;  ///< `chimera train`
  std::string description;
  std::string usage;  ///< `chimera train [FLAGS]`
  std::vector<FlagGroup> groups;
  std::vector<std::string> examples;    ///< shell lines
  std::vector<std::string> paragraphs;  ///< what --help says below them
  std::vector<CommandEntry> subcommands;

  [[nodiscard]] std::string last_name() const { return name.substr(name.rfind(' ') + 1); }
};

/// Everything that `program` has.
[[nodiscard]] CommandEntry entry_of(const CLI::App& program);

/// A page for man(1): of the program with a list of its subcommands, or of a subcommand and those below it.
[[nodiscard]] std::string to_man_page(const CommandEntry& command, const std::string& version);
/// A page of the book, in Markdown.
[[nodiscard]] std::string to_markdown(const CommandEntry& command);
/// Scripts that complete subcommands, flags, the words that flags take, and files.
[[nodiscard]] std::string bash_completion(const CommandEntry& program);
[[nodiscard]] std::string zsh_completion(const CommandEntry& program);
[[nodiscard]] std::string fish_completion(const CommandEntry& program);

}  // namespace chimera::apps
