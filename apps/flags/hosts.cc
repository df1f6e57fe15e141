#include "flags/hosts.h"

#include <filesystem>
#include <iterator>
#include <sstream>

#include "core/reject.h"
#include "core/shell_words.h"
#include "flags/values.h"

namespace chimera::apps {

void add_hosts(CLI::App& command, HostFlags& flags, const std::string& help) {
  command.add_option("--hosts", flags.hosts, help)->type_name("HOSTS");
}

void add_ssh_flags(CLI::App& command, HostFlags& flags) {
  add_string(
      command, "--ssh", flags.ssh, "COMMAND",
      "command that runs another command on a host; host and command are appended (default 'ssh -o BatchMode=yes')");
  add_path(command, "--program", flags.program, "path of chimera on the hosts (default: the path of this program)");
  add_string(command, "--master", flags.master, "HOST",
             "name or address of the first host, as other hosts reach it (default: as in --hosts)");
}

std::vector<std::string> remote_command(const HostFlags& flags, const std::string& host,
                                        const std::vector<std::string>& arguments) {
  const std::string folder = std::filesystem::current_path().string();
  std::vector<std::string> program = arguments;
  program.insert(program.begin(), flags.program);
  // ssh starts in the home directory, but paths of the user are relative to the current one. exec hands signals to the
  // program itself.
  const std::string command = fmt::format("cd {} && exec {}", shell_words({folder}), shell_words(program));
  // The same line on this machine, without ssh.
  if (flags.hosts.empty()) return {"/bin/sh", "-c", command};
  // Split at blanks, without quotes: an argument of ssh with a blank belongs into its configuration.
  std::istringstream ssh(flags.ssh);
  std::vector<std::string> words(std::istream_iterator<std::string>(ssh), {});
  if (words.empty()) reject("--ssh has no words; expected a command such as 'ssh -p 2222'");
  // ssh joins its words with blanks for the shell of the host, so the command is one word that is quoted already.
  words.insert(words.end(), {host, command});
  return words;
}

}  // namespace chimera::apps
