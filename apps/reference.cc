// `chimera reference`: prints all commands and flags as JSON. tools/print_reference turns it into man pages, shell
// completions and pages of the book, when the program is built. The command is hidden, because only the build and tests
// need it. The flags are read from CLI11, so that help, man pages and completions cannot differ.

#include "build_information.h"
#include "commands.h"
#include "core/json.h"
#include "core/mapped.h"
#include "flags/outputs.h"
#include "generate/registry.h"
#include "help.h"
#include "model_config/config.h"
#include "program.h"

namespace chimera::apps {
namespace {

using Json = nlohmann::ordered_json;

/// Returns values to complete: names of schedules, models and shipped files; other values are possible.
std::vector<std::string> known_names(const std::string& command, const std::string& flag) {
  const std::string what = flag == "NAME" ? command : flag;
  if (what == "--schedule" || what == "--schedules" || what == "schedule" || what == "simulate" || what == "check")
    return schedule_names();
  if (what == "--model" || what == "model") return preset_names();
  if (what == "--machine") return shipped_names(kAMachine);
  if (what == "--recipe") return shipped_names(kARecipe);
  if (what == "--record") return shipped_names(kARecord);
  return {};
}

Json flag_json(const std::string& command, const CLI::Option& option) {
  std::vector<std::string> names;
  for (const std::string& name : option.get_snames()) names.push_back("-" + name);
  for (const std::string& name : option.get_lnames()) names.push_back("--" + name);
  if (option.get_positional()) names.push_back(option.get_name(true));
  // CLI11 appends checks to the type, as in `INT:POSITIVE`
  const std::string type = option.get_type_name().substr(0, option.get_type_name().find(':'));
  return {{"names", names},
          {"group", option.get_positional() ? "Arguments" : option.get_group()},
          {"is_argument", option.get_positional()},
          {"takes", option.get_positional() || option.get_type_size() == 0 ? "" : type},
          {"known", known_names(command, names.back())},
          {"description", option.get_description()}};
}

Json command_json(const CLI::App& app) {
  Json flags = Json::array();
  for (const CLI::Option* option : app.get_options())
    if (!option->get_group().empty()) flags.push_back(flag_json(app.get_name(), *option));  // not hidden
  const auto inner = app.get_subcommands([](const CLI::App* each) { return !each->get_group().empty(); });
  return {{"name", full_command_name(app)},
          {"description", app.get_description()},
          {"footer", app.get_footer()},
          {"flags", flags},
          {"subcommands", mapped(inner, [](const CLI::App* one) { return command_json(*one); })}};
}

}  // namespace

void add_reference(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand(kReference, "Print all commands and flags as JSON");
  command->group("");  // hidden
  command->footer(
      "Examples:\n"
      "  chimera reference\n"
      "\n`tools/print_reference` in the sources makes man pages, completions and pages of the book from it.\n"
      "\nMore: docs/platforms.md");
  command->callback([&program] {
    Json json = command_json(program);
    json["version"] = version();
    write_output("", json_report(json));
  });
}

}  // namespace chimera::apps
