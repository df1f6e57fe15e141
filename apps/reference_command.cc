#include <filesystem>
#include <memory>

#include "build_information.h"
#include "commands.h"
#include "core/error.h"
#include "core/nearest.h"
#include "core/output_file.h"
#include "help.h"
#include "options.h"
#include "reference.h"

namespace chimera::apps {
namespace {

struct ReferenceArguments {
  std::string kind;
  std::string command;
  std::string folder;
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

/// Pages of all subcommands, and every shell's completion, as `cmake --install` puts them below the prefix.
void write_folder(const CommandEntry& program, const std::string& folder) {
  namespace fs = std::filesystem;
  const fs::path root = folder;
  for (const char* part : {"man", "markdown", "completions"}) fs::create_directories(root / part);
  write_whole((root / "man" / "chimera.1").string(), to_man_page(program, version()));
  for (const CommandEntry& command : program.subcommands) {
    const std::string name = command.last_name();
    write_whole((root / "man" / ("chimera-" + name + ".1")).string(), to_man_page(command, version()));
    write_whole((root / "markdown" / (name + ".md")).string(), to_markdown(command));
  }
  write_whole((root / "completions" / "chimera").string(), bash_completion(program));
  write_whole((root / "completions" / "_chimera").string(), zsh_completion(program));
  write_whole((root / "completions" / "chimera.fish").string(), fish_completion(program));
}

}  // namespace

void add_reference(CLI::App& program, int&) {
  auto* command = program.add_subcommand(kReference, "Write man pages, and completions for bash, zsh and fish");
  command->footer(
      "Examples:\n"
      "  chimera reference man > chimera.1\n"
      "  chimera reference man --command train > chimera-train.1\n"
      "  chimera reference bash > ~/.local/share/bash-completion/completions/chimera\n"
      "  chimera reference zsh > ~/.zfunc/_chimera\n"
      "  chimera reference fish > ~/.config/fish/completions/chimera.fish\n"
      "  chimera reference all --folder reference\n"
      "\nAll of them are written from the flags that the program itself reads; `cmake --install` and the Debian "
      "package "
      "put them where man and the shells look. markdown is what the book of the documentation shows.");
  auto options = std::make_shared<ReferenceArguments>();
  add_word(
      *command, "KIND", {"man", "markdown", "bash", "zsh", "fish", "all"},
      [options](const std::string& kind) { options->kind = kind; }, "what to write; all: everything, to --folder")
      ->required();
  begin_group(*command, heading::kOutput);
  command->add_option("--command", options->command, "the subcommand that a page is about (default: the program)")
      ->type_name("NAME");
  add_path(*command, "--folder", options->folder, "folder for all of it: man/, markdown/, completions/",
           PathKind::Folder);
  command->callback([options, &program] {
    const CommandEntry entry = entry_of(program);
    if ((options->kind == "all") != !options->folder.empty()) {
      throw ConfigError("reference: all and --folder DIR go together");
    }
    if (options->kind == "all") return write_folder(entry, options->folder);
    write_output("", written(entry, *options));
  });
}

}  // namespace chimera::apps
