#include "answers/playground.h"
#include "flags/outputs.h"
#include "flags/values.h"

#include <iostream>
#include <memory>
#include <sstream>

#include "commands.h"
#include "core/files.h"
#include "core/reject.h"
#include "help.h"
#include "launch/local/launcher.h"

namespace chimera::apps {
namespace {

struct PlaygroundArguments {
  std::string output;
  std::string answer;
};

std::string page_path() {
  const std::filesystem::path folder = std::filesystem::path(own_executable()).parent_path();
  // Installed, or in a build folder.
  for (const auto& page :
       {folder.parent_path() / CHIMERA_DATA_FOLDER / "playground.html", folder / "web" / "playground.html"})
    if (std::filesystem::is_regular_file(page)) return page.string();
  reject("playground: this program was built without its page; `tools/playground` in the sources builds it");
}

void answer_lines(const std::string& path) {
  std::istringstream file(path == "-" ? "" : read_whole(path));
  std::istream& in = path == "-" ? std::cin : file;
  // A line per request, and an answer as soon as it is there, so that another program can talk to this one.
  for (std::string request; std::getline(in, request);) write_output("", playground::answer(request) + "\n");
}

}  // namespace

void add_playground(CLI::App& program, const Invocation&, int&) {
  auto* command =
      program.add_subcommand("playground", "Write an interactive page: schedules, models and plans in a browser");
  command->footer(
      "Examples:\n"
      "  chimera playground --output playground.html\n"
      "  echo '{\"do\": \"catalog\"}' | chimera playground --answer -\n"
      "\nThe page is one file that works from disk, without a network. It contains this program's scheduling half, "
      "compiled to WebAssembly. --answer gives the same answers as the page.\n"
      "\nMore: docs/playground.md");
  auto options = std::make_shared<PlaygroundArguments>();
  begin_group(*command, heading::kOutput);
  add_output_checks(*command, {add_path(*command, "--output", options->output, "write the page to this file")});
  add_path(*command, "--answer", options->answer,
           "answer the JSON requests in this file, one per line, instead; - reads standard input");
  command->callback([options] {
    if (options->output.empty() == options->answer.empty())
      reject("playground: give --output FILE for the page, or --answer FILE");
    if (!options->answer.empty()) return answer_lines(options->answer);
    write_output(options->output, read_whole(page_path()));
  });
}

}  // namespace chimera::apps
