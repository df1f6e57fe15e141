#include "flags/hosts.h"

#include <fmt/format.h>

#include <filesystem>
#include <iterator>
#include <sstream>

#include "core/error.h"
#include "flags/values.h"
#include "program.h"

namespace chimera::apps {
namespace {

std::vector<std::string> split(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

}  // namespace

void add_hosts(CLI::App& command, HostFlags& flags, const std::string& help) {
  command.add_option("--hosts", flags.hosts, help)->type_name("HOSTS");
}

void add_ways_to_hosts(CLI::App& command, HostFlags& flags) {
  command
      .add_option(
          "--ssh", flags.ssh,
          "command that runs another command on a host; host and command are appended (default 'ssh -o BatchMode=yes')")
      ->type_name("COMMAND");
  add_path(command, "--program", flags.program, "path of chimera on the hosts (default: the path of this program)");
  command
      .add_option("--master", flags.master,
                  "name or address of the first host, as other hosts reach it (default: as in --hosts)")
      ->type_name("HOST");
}

void require_hosts(const CLI::App& command, const std::vector<std::string>& flags) {
  for (const std::string& flag : flags) {
    if (command.count(flag) == 0 || command.count("--hosts") > 0) continue;
    throw ConfigError(fmt::format("{} is for --hosts; give that too, or leave it out", flag));
  }
}

std::vector<std::string> program_on(const HostFlags& flags, const std::string& host,
                                    const std::vector<std::string>& arguments) {
  const std::string folder = std::filesystem::current_path().string();
  std::vector<std::string> program = arguments;
  program.insert(program.begin(), flags.program);
  const std::string command = fmt::format("cd {} && exec {}", shell_words({folder}), shell_words(program));
  if (flags.hosts.empty()) return {"/bin/sh", "-c", command};
  std::vector<std::string> words = split(flags.ssh);
  if (words.empty()) throw ConfigError("--ssh has no words; expected a command such as 'ssh -p 2222'");
  words.insert(words.end(), {host, command});
  return words;
}

}  // namespace chimera::apps
