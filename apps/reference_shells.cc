// Completions for bash, zsh and fish.

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "reference.h"

namespace chimera::apps {
namespace {

std::vector<std::string> flag_names_of(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const FlagGroup& group : command.groups) {
    for (const FlagEntry& flag : group.flags) {
      if (!flag.is_argument) names.insert(names.end(), flag.names.begin(), flag.names.end());
    }
  }
  return names;
}

/// The names that its arguments are known to take.
std::vector<std::string> known_arguments(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const FlagGroup& group : command.groups) {
    for (const FlagEntry& flag : group.flags) {
      if (flag.is_argument) names.insert(names.end(), flag.known.begin(), flag.known.end());
    }
  }
  return names;
}

std::vector<std::string> names_below(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const CommandEntry& inner : command.subcommands) names.push_back(inner.last_name());
  return names;
}

/// In single quotes of a shell, where `also` are characters that it wants a backslash before.
std::string quoted(const std::string& text, const std::string& also = "") {
  std::string result = "'";
  for (const char c : text) {
    if (c == '\'') {
      result += "'\\''";
      continue;
    }
    if (also.find(c) != std::string::npos) result += '\\';
    result += c;
  }
  return result + "'";
}

/// The flags of a command whose words are known.
std::string bash_words(const CommandEntry& command) {
  std::string text;
  for (const FlagGroup& group : command.groups) {
    for (const FlagEntry& flag : group.flags) {
      if (flag.is_argument || flag.offered().empty()) continue;
      text += fmt::format("    {}:{}) words={} ;;\n", command.last_name(),
                          fmt::join(flag.names, fmt::format("|{}:", command.last_name())),
                          quoted(fmt::format("{}", fmt::join(flag.offered(), " "))));
    }
  }
  return text;
}

std::string zsh_flags(const CommandEntry& command) {
  std::string text;
  for (const FlagGroup& group : command.groups) {
    for (const FlagEntry& flag : group.flags) {
      std::string action;
      if (const auto words = flag.offered(); !words.empty()) {
        action = fmt::format(":value:({})", fmt::join(words, " "));
      } else if (flag.takes_file()) {
        action = ":file:_files";
      } else if (!flag.takes.empty()) {
        action = ":value:";
      }
      if (flag.is_argument) {
        if (action.empty()) action = ":" + flag.names.front() + ":";
        text += " " + quoted("*" + action);
        continue;
      }
      for (const std::string& name : flag.names) {
        text += " \\\n        " + quoted("*" + name + "[" + flag.description + "]" + action, "");
      }
    }
  }
  return text;
}

/// Brackets end the description of a flag of zsh, and colons its parts.
CommandEntry for_zsh(CommandEntry command) {
  for (FlagGroup& group : command.groups) {
    for (FlagEntry& flag : group.flags) {
      std::string text;
      for (const char c : flag.description) {
        if (c == '[' || c == ']' || c == ':' || c == '\\') text += '\\';
        text += c;
      }
      flag.description = text;
    }
  }
  return command;
}

std::string fish_flags(const CommandEntry& command, const std::string& condition) {
  std::string text;
  for (const FlagGroup& group : command.groups) {
    for (const FlagEntry& flag : group.flags) {
      if (flag.is_argument) continue;
      text += fmt::format("complete -c chimera{}", condition);
      for (const std::string& name : flag.names) {
        text += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (const auto words = flag.offered(); !words.empty()) {
        text += fmt::format(" -x -a {}", quoted(fmt::format("{}", fmt::join(words, " ")), "\\"));
      } else if (!flag.takes.empty()) {
        text += flag.takes_file() ? " -r -F" : " -x";
      }
      text += " -d " + quoted(flag.description, "\\") + "\n";
    }
  }
  return text;
}

}  // namespace

std::string bash_completion(const CommandEntry& program) {
  std::string flags;
  std::string words;
  for (const CommandEntry& command : program.subcommands) {
    auto all = names_below(command);
    const auto arguments = known_arguments(command);
    all.insert(all.end(), arguments.begin(), arguments.end());
    const auto names = flag_names_of(command);
    all.insert(all.end(), names.begin(), names.end());
    for (const CommandEntry& inner : command.subcommands) {
      const auto below = flag_names_of(inner);
      all.insert(all.end(), below.begin(), below.end());
    }
    flags += fmt::format("    {}) all={} ;;\n", command.last_name(), quoted(fmt::format("{}", fmt::join(all, " "))));
    words += bash_words(command);
  }
  return fmt::format(
      "# bash completion of chimera, written by `chimera reference bash`.\n"
      "_chimera() {{\n"
      "  local word=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD-1]}} command=${{COMP_WORDS[1]}}\n"
      "  local all='' words=''\n"
      "  COMPREPLY=()\n"
      "  if [[ $COMP_CWORD -eq 1 ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W {} -- \"$word\")\n"
      "    return\n"
      "  fi\n"
      "  case $command:$before in\n{}  esac\n"
      "  if [[ -n $words ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$word\")\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n{}  esac\n"
      "  if [[ $word == -* || $COMP_CWORD -eq 2 ]]; then\n"
      "    mapfile -t COMPREPLY < <(compgen -W \"$all\" -- \"$word\")\n"
      "  fi\n"
      "}}\n"
      "complete -o bashdefault -o default -F _chimera chimera\n",
      quoted(fmt::format("{} --help --version", fmt::join(names_below(program), " "))), words, flags);
}

std::string zsh_completion(const CommandEntry& program) {
  std::string commands;
  std::string cases;
  for (const CommandEntry& command : program.subcommands) {
    commands += fmt::format("    {}\n", quoted(command.last_name() + ":" + command.description));
    cases += fmt::format("    {})\n      _arguments{}", command.last_name(), zsh_flags(for_zsh(command)));
    for (const CommandEntry& inner : command.subcommands) cases += zsh_flags(for_zsh(inner));
    if (!command.subcommands.empty()) {
      cases += " \\\n        " + quoted(fmt::format("1:subcommand:({})", fmt::join(names_below(command), " ")));
    }
    cases += "\n      ;;\n";
  }
  return fmt::format(
      "#compdef chimera\n# zsh completion of chimera, written by `chimera reference zsh`.\n"
      "_chimera() {{\n  local -a commands\n  commands=(\n{}  )\n"
      "  if (( CURRENT == 2 )); then\n    _describe 'subcommand' commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n"
      "  case $command in\n{}  esac\n}}\n"
      "if [[ $funcstack[1] = _chimera ]]; then _chimera \"$@\"; else compdef _chimera chimera; fi\n",
      commands, cases);
}

std::string fish_completion(const CommandEntry& program) {
  std::string text =
      "# fish completion of chimera, written by `chimera reference fish`.\n"
      "complete -c chimera -n __fish_use_subcommand -f\n";
  for (const CommandEntry& command : program.subcommands) {
    text += fmt::format("complete -c chimera -n __fish_use_subcommand -a {} -d {}\n", command.last_name(),
                        quoted(command.description, "\\"));
    const std::string condition = fmt::format(" -n '__fish_seen_subcommand_from {}'", command.last_name());
    for (const std::string& name : known_arguments(command)) {
      text += fmt::format("complete -c chimera{} -a {}\n", condition, quoted(name, "\\"));
    }
    text += fish_flags(command, condition);
    for (const CommandEntry& inner : command.subcommands) {
      text += fmt::format("complete -c chimera{} -a {} -d {}\n", condition, inner.last_name(),
                          quoted(inner.description, "\\"));
      text += fish_flags(inner, condition);
    }
  }
  return text;
}

}  // namespace chimera::apps
