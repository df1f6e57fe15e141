// `chimera completion`: prints the completions of a shell, which tools/print_reference has written in the build.

#include <algorithm>
#include <memory>

#include "commands.h"
#include "core/files.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "program.h"

namespace chimera::apps {

void add_completion(CLI::App& program, const Invocation&, int&) {
  auto* command = program.add_subcommand("completion", "Print the completions of a shell");
  command->group("");  // hidden; the help of the program names it
  command->footer(
      "Examples:\n"
      "  source <(chimera completion bash)   # in ~/.bashrc\n"
      "  source <(chimera completion zsh)   # in ~/.zshrc\n"
      "  chimera completion fish | source\n"
      "\nMore: docs/platforms.md");
  auto shell = std::make_shared<std::string>();
  command->add_option("SHELL", *shell, "bash, zsh or fish")->required();
  command->callback([shell] {
    const std::vector<std::string> shells = {"bash", "zsh", "fish"};
    const auto found = std::ranges::find(shells, *shell);
    if (found == shells.end()) throw ConfigError(unknown_name("shell", *shell, shells));
    const std::string file = *shell == "bash" ? "chimera" : *shell == "zsh" ? "_chimera" : "chimera.fish";
    write_output("", read_whole(shipped_file("completions/" + file)));
  });
}

}  // namespace chimera::apps
