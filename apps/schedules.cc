
#include <memory>

#include "commands.h"
#include "core/json.h"
#include "core/mapped.h"
#include "flags/outputs.h"
#include "generate/registry.h"
#include "render/text_table.h"

namespace chimera::apps {
namespace {

std::string as_json() {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const Generator& g : generators()) {
    list.push_back({{"name", g.name},
                    {"constraints", g.constraints},
                    {"closed_form", g.closed_form},
                    {"activations", g.activations},
                    {"source", g.source},
                    {"rule", g.rule},
                    {"synchronous", g.synchronous},
                    {"flags", mapped(g.axes, [](const auto& taken) { return shape_axis(taken.axis).flag(); })},
                    {"figure", {{"stages", g.figure.stages}, {"micro_batches", g.figure.micro_batches}}}});
  }
  return json_report(list);
}

std::string as_table() {
  std::vector<std::vector<std::string>> rows = {{"schedule", "constraints", "closed form", "in flight", "source"}};
  for (const Generator& g : generators())
    rows.push_back({g.name, g.constraints, g.closed_form, g.activations, g.source});
  // All columns are texts.
  return text_table(rows, rows.front().size());
}

}  // namespace

void add_schedules(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("schedules", "List all schedules with their constraints and closed forms");
  command->footer(
      "Examples:\n"
      "  chimera schedules\n"
      "  chimera schedules --format json\n"
      "\nMore: docs/schedules.md");
  auto format = std::make_shared<Format>();
  add_format(*command, *format, {Format::Text, Format::Json});
  command->callback([format] { write_output("", *format == Format::Json ? as_json() : as_table(), *format); });
}

}  // namespace chimera::apps
