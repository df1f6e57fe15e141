#include "reference.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <map>
#include <memory>
#include <sstream>

#include "build_information.h"
#include "commands.h"
#include "core/choices.h"
#include "core/error.h"
#include "core/files.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "generate/registry.h"
#include "help.h"
#include "model_config/config.h"

namespace chimera::apps {
namespace {

std::vector<std::string> split(const std::string& text, char separator) {
  std::vector<std::string> parts;
  std::istringstream stream(text);
  for (std::string part; std::getline(stream, part, separator);) parts.push_back(part);
  return parts;
}

bool is_lower_word(const std::string& word) {
  return !word.empty() && std::ranges::all_of(word, [](unsigned char c) {
    return std::islower(c) != 0 || std::isdigit(c) != 0 || c == '-' || c == '_' || c == '.';
  });
}

std::vector<std::string> known_names(const std::string& command, const std::string& name) {
  const std::string what = name == "NAME" ? command : name;
  if (what == "--schedule" || what == "--schedules" || what == "schedule" || what == "simulate" || what == "check")
    return schedule_names();
  if (what == "--model" || what == "model") return preset_names();
  return {};
}

FlagEntry flag_of(const std::string& command, const CLI::Option* option) {
  FlagEntry flag{
      .names = {}, .takes = {}, .description = option->get_description(), .is_argument = option->get_positional()};
  if (flag.is_argument) {
    flag.names.push_back(option->get_name(true));
    flag.known = known_names(command, flag.names.back());
    return flag;
  }
  for (const std::string& name : option->get_snames()) flag.names.push_back("-" + name);
  for (const std::string& name : option->get_lnames()) flag.names.push_back("--" + name);
  if (option->get_type_size() != 0) flag.takes = option->get_type_name().substr(0, option->get_type_name().find(':'));
  if (!flag.names.empty()) flag.known = known_names(command, flag.names.back());
  return flag;
}

/// Arguments come first, help last.
std::vector<FlagGroup> groups_of(const CLI::App& app) {
  std::vector<FlagGroup> groups;
  FlagGroup arguments{"Arguments", {}};
  FlagGroup help{heading::kHelp, {}};
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (group.empty()) continue;  // hidden flags
    if (option->get_positional()) {
      arguments.flags.push_back(flag_of(app.get_name(), option));
    } else if (group == heading::kHelp) {
      help.flags.push_back(flag_of(app.get_name(), option));
    } else {
      auto found = std::ranges::find(groups, group, &FlagGroup::heading);
      if (found == groups.end()) found = groups.insert(groups.end(), {group, {}});
      found->flags.push_back(flag_of(app.get_name(), option));
    }
  }
  if (!arguments.flags.empty()) groups.insert(groups.begin(), std::move(arguments));
  if (!help.flags.empty()) groups.push_back(std::move(help));
  return groups;
}

CommandEntry entry_below(const CLI::App& app, const std::string& parents) {
  CommandEntry entry;
  entry.name = parents.empty() ? app.get_name() : parents + " " + app.get_name();
  entry.description = app.get_description();
  entry.groups = groups_of(app);
  for (const std::string& line : split(app.get_footer(), '\n')) {
    if (line.starts_with("  ")) {
      entry.examples.push_back(line.substr(2));
    } else if (!line.empty() && line != "Examples:") {
      entry.paragraphs.push_back(line);
    }
  }
  for (const CLI::App* inner : app.get_subcommands([](const CLI::App* one) { return !one->get_group().empty(); })) {
    entry.subcommands.push_back(entry_below(*inner, entry.name));
  }
  entry.usage = entry.name + (entry.subcommands.empty() ? " [FLAGS]" : " SUBCOMMAND");
  for (const FlagGroup& group : entry.groups) {
    for (const FlagEntry& flag : group.flags) {
      if (flag.is_argument) entry.usage += " " + flag.names.front();
    }
  }
  return entry;
}

struct ReferenceArguments {
  std::string kind;
  std::string command;
  std::string folder;
  bool overwrites = false;
};

const CommandEntry& named(const CommandEntry& program, const std::string& name) {
  if (name.empty()) return program;
  std::vector<std::string> names;
  for (const CommandEntry& command : program.subcommands) {
    if (command.last_name() == name) return command;
    names.push_back(command.last_name());
  }
  throw ConfigError(unknown_name("--command", name, names));
}

std::string written(const CommandEntry& program, const ReferenceArguments& options) {
  if (options.kind == "man") return to_man_page(named(program, options.command), version());
  if (options.kind == "markdown") return to_markdown(named(program, options.command));
  if (!options.command.empty()) throw ConfigError("--command goes with man and markdown; a shell's completion has all");
  if (options.kind == "bash") return bash_completion(program);
  return options.kind == "zsh" ? zsh_completion(program) : fish_completion(program);
}

/// Uses the layout of `cmake --install`.
void write_folder(const CommandEntry& program, const ReferenceArguments& options) {
  std::map<std::string, std::string> files = {{"man/chimera.1", to_man_page(program, version())},
                                              {"completions/chimera", bash_completion(program)},
                                              {"completions/_chimera", zsh_completion(program)},
                                              {"completions/chimera.fish", fish_completion(program)}};
  for (const CommandEntry& command : program.subcommands) {
    const std::string name = command.last_name();
    files["man/chimera-" + name + ".1"] = to_man_page(command, version());
    files["markdown/" + name + ".md"] = to_markdown(command);
  }
  const std::string root = options.folder + "/";
  for (const auto& [name, text] : files) require_unused("--folder", root + name, options.overwrites);
  for (const auto& [name, text] : files) write_whole(root + name, text);
}

/// Escapes text for man(7): control characters at line starts, and hyphens.
std::string roff(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '\\') {
      result += "\\e";
    } else if (c == '-') {
      result += "\\-";
    } else {
      result += c;
    }
  }
  return result.starts_with('.') || result.starts_with('\'') ? "\\&" + result : result;
}

std::string flag_names(const FlagEntry& flag) { return fmt::format("{}", fmt::join(flag.names, ", ")); }

std::string man_flags(const CommandEntry& command) {
  std::string text;
  for (const FlagGroup& group : command.groups) {
    text += fmt::format(".SS {}\n", roff(group.heading));
    for (const FlagEntry& flag : group.flags) {
      text += fmt::format(".TP\n\\fB{}\\fR{}\n{}\n", roff(flag_names(flag)),
                          flag.takes.empty() ? "" : " \\fI" + roff(flag.takes) + "\\fR",
                          flag.description.empty() ? "\\&" : roff(flag.description));
    }
  }
  return text;
}

std::string dashed(std::string name) {
  for (char& c : name) {
    if (c == ' ') c = '-';
  }
  return name;
}

std::string table_cell(const std::string& text) {
  std::string result;
  for (const char c : text) {
    if (c == '|') result += '\\';
    result += c;
  }
  return result;
}

/// Headings are one level below `level`.
std::string markdown_body(const CommandEntry& command) {
  std::string text = fmt::format("{}.\n\n```\n{}\n```\n\n", command.description, command.usage);
  for (const std::string& paragraph : command.paragraphs) text += paragraph + "\n\n";
  if (!command.examples.empty()) text += fmt::format("```\n{}\n```\n\n", fmt::join(command.examples, "\n"));
  for (const FlagGroup& group : command.groups) {
    text += fmt::format("**{}**\n\n| flag | what |\n| --- | --- |\n", group.heading);
    for (const FlagEntry& flag : group.flags) {
      const std::string takes = flag.takes.empty() ? "" : " " + flag.takes;
      text += fmt::format("| `{}`{} | {} |\n", flag_names(flag), table_cell(takes), table_cell(flag.description));
    }
    text += "\n";
  }
  return text;
}

std::vector<std::string> flag_names_of(const CommandEntry& command) {
  std::vector<std::string> names;
  for (const FlagGroup& group : command.groups) {
    for (const FlagEntry& flag : group.flags) {
      if (!flag.is_argument) names.insert(names.end(), flag.names.begin(), flag.names.end());
    }
  }
  return names;
}

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

/// Characters in `also` get a backslash.
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

/// Escapes brackets and colons, which zsh interprets in descriptions.
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

std::vector<std::string> FlagEntry::words() const {
  const auto parts = split(takes, '|');
  return parts.size() > 1 && std::ranges::all_of(parts, is_lower_word) ? parts : std::vector<std::string>{};
}

std::vector<std::string> FlagEntry::offered() const {
  std::vector<std::string> all = words();
  return all.empty() ? known : all;
}

bool FlagEntry::takes_file() const {
  const std::string& what = is_argument ? names.front() : takes;
  return std::ranges::any_of(std::vector<std::string>{"FILE", "DIR", "RUN", "PATH", "DATA", "CHECKPOINT", "FOLDER"},
                             [&](const std::string& word) { return what.find(word) != std::string::npos; });
}

CommandEntry entry_of(const CLI::App& program) { return entry_below(program, ""); }

void add_reference(CLI::App& program, int&) {
  auto* command = program.add_subcommand(kReference, "Write man pages, and completions for bash, zsh and fish");
  command->group("");  // for packages
  command->footer(
      "Examples:\n"
      "  chimera reference man > chimera.1\n"
      "  chimera reference man --command train > chimera-train.1\n"
      "  chimera reference bash > ~/.local/share/bash-completion/completions/chimera\n"
      "  chimera reference zsh > ~/.zfunc/_chimera\n"
      "  chimera reference fish > ~/.config/fish/completions/chimera.fish\n"
      "  chimera reference all --folder reference\n"
      "\n`cmake --install` and the Debian package install man pages and completions. The online documentation uses "
      "markdown.\n"
      "\nMore: docs/platforms.md");
  auto options = std::make_shared<ReferenceArguments>();
  add_word(
      *command, "KIND", {"man", "markdown", "bash", "zsh", "fish", "all"},
      [options](const std::string& kind) { options->kind = kind; }, "what to write; all: everything, to --folder")
      ->required();
  begin_group(*command, heading::kOutput);
  command->add_option("--command", options->command, "subcommand of the page (default: the program)")
      ->type_name("NAME");
  add_path(*command, "--folder", options->folder, "folder for man/, markdown/ and completions/", PathKind::Folder);
  command->add_flag("--overwrite", options->overwrites, "replace files that exist in --folder");
  command->callback([options, &program] {
    const CommandEntry entry = entry_of(program);
    if ((options->kind == "all") != !options->folder.empty()) {
      throw ConfigError("reference: all and --folder DIR go together");
    }
    if (options->kind == "all" && !options->command.empty()) {
      throw ConfigError("--command: reference all writes all commands; leave it out");
    }
    if (options->kind == "all") return write_folder(entry, *options);
    if (options->overwrites) throw ConfigError("--overwrite: standard output replaces no file; leave it out");
    write_output("", written(entry, *options));
  });
}

std::string to_man_page(const CommandEntry& command, const std::string& version) {
  const std::string name = dashed(command.name);
  std::string text = fmt::format(".TH {} 1 \"\" \"chimera {}\" \"User Commands\"\n", roff(name), version);
  text += fmt::format(".SH NAME\n{} \\- {}\n", roff(name), roff(command.description));
  text += fmt::format(".SH SYNOPSIS\n\\fB{}\\fR\n", roff(command.usage));
  text += ".SH DESCRIPTION\n";
  if (command.paragraphs.empty()) text += roff(command.description) + ".\n";
  for (const std::string& paragraph : command.paragraphs) text += ".PP\n" + roff(paragraph) + "\n";
  if (!command.subcommands.empty()) text += ".SH SUBCOMMANDS\n";
  for (const CommandEntry& inner : command.subcommands) {
    text += fmt::format(".TP\n\\fB{}\\fR\n{}\n", roff(inner.last_name()), roff(inner.description));
  }
  if (!command.groups.empty()) text += ".SH OPTIONS\n" + man_flags(command);
  if (!command.examples.empty()) {
    text += ".SH EXAMPLES\n.nf\n";
    for (const std::string& example : command.examples) text += roff(example) + "\n";
    text += ".fi\n";
  }
  return text +
         ".SH SEE ALSO\n\\fBchimera\\fR(1); each subcommand has a page, \\fBchimera\\-train\\fR(1) for example.\n";
}

std::string to_markdown(const CommandEntry& command) {
  std::string text = fmt::format("# {}\n\n{}", command.name, markdown_body(command));
  for (const CommandEntry& inner : command.subcommands) {
    text += fmt::format("## {}\n\n{}", inner.name, markdown_body(inner));
  }
  return text;
}

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
