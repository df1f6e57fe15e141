#include "reference.h"

#include <algorithm>
#include <sstream>

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

/// The names that a flag, or the argument of a subcommand, is known to take.
std::vector<std::string> known_names(const std::string& command, const std::string& name) {
  const std::string what = name == "NAME" ? command : name;
  if (what == "--schedule" || what == "--schedules" || what == "schedule" || what == "simulate")
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

/// The groups of --help, in its order: arguments first, help last.
std::vector<FlagGroup> groups_of(const CLI::App& app) {
  std::vector<FlagGroup> groups;
  FlagGroup arguments{"Arguments", {}};
  FlagGroup help{heading::kHelp, {}};
  for (const CLI::Option* option : app.get_options()) {
    const std::string& group = option->get_group();
    if (group.empty()) continue;  // not for people
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

}  // namespace chimera::apps
