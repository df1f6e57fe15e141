#include <fmt/format.h>
#include <unistd.h>

#include <filesystem>
#include <memory>
#include <sstream>

#include "commands.h"
#include "core/error.h"
#include "help.h"
#include "launch/environment.h"
#include "launch/host_launcher.h"
#include "launch/launcher.h"
#include "launch/part.h"
#include "meeting/secret.h"
#include "options.h"
#include "own_command.h"

namespace chimera::apps {
namespace {

using Words = std::vector<std::string>;

struct Options {
  std::string hosts;
  std::int64_t ranks = 1;
  std::string ssh = "ssh -o BatchMode=yes";
  std::string program = own_executable();
  std::string master;
  std::int64_t port = 0;
  Words variables;
  bool dry_run = false;
  bool part = false;
  Words command;
};

/// A port that no other job is likely to have, below those that systems give to clients.
std::int64_t any_port() {
  const Proof numbers = random_numbers();
  return 20000 + (numbers[0] * 256 + numbers[1]) % 10000;
}

/// Without USER@.
std::string name_of(const std::string& host) { return host.substr(host.find('@') + 1); }

Words split(const std::string& text) {
  std::istringstream words(text);
  return {std::istream_iterator<std::string>(words), {}};
}

Words variables_of(const Options& options, const std::vector<HostRanks>& hosts) {
  Words variables = variables_for_others();
  for (const std::string& each : options.variables) {
    const char* own = each.find('=') == std::string::npos ? std::getenv(each.c_str()) : "";
    if (own == nullptr) throw ConfigError(fmt::format("--variable {}: it is not set here; give NAME=VALUE", each));
    variables.push_back(*own == '\0' ? each : fmt::format("{}={}", each, own));
  }
  const std::string master = options.hosts.empty() ? "127.0.0.1" : name_of(hosts.front().host);
  variables.push_back(fmt::format("{}={}", kMasterAddressVariable, options.master.empty() ? master : options.master));
  variables.push_back(fmt::format("{}={}", kMasterPortVariable, options.port > 0 ? options.port : any_port()));
  return variables;
}

/// What is run on this machine for one host; the rest is said on its standard input.
Words host_words(const Options& options, const HostRanks& ranks) {
  const std::string folder = std::filesystem::current_path().string();
  const std::string command =
      fmt::format("cd {} && exec {}", shell_words({folder}), shell_words({options.program, "launch", "--part"}));
  if (options.hosts.empty()) return {"/bin/sh", "-c", command};
  Words words = split(options.ssh);
  if (words.empty()) throw ConfigError("--ssh has no words; expected a command such as 'ssh -p 2222'");
  words.insert(words.end(), {ranks.host, command});
  return words;
}

std::vector<HostCommand> host_commands(const Options& options) {
  const bool trains = !options.command.empty() && options.command.front() == kTrain.name;
  if (!trains && !measures_between_hosts(options.command)) {
    throw ConfigError(
        "expected `--` and the command whose ranks are started: chimera launch --hosts a,b -- train ..., or "
        "profile --between ...");
  }
  require_between("--nproc", options.ranks, 1, 1024);
  if (options.port != 0) require_between("--port", options.port, 1, 65535);
  const auto hosts = parse_hosts(options.hosts.empty() ? "localhost" : options.hosts, static_cast<int>(options.ranks));
  const Words variables = variables_of(options, hosts);
  std::vector<HostCommand> commands;
  for (const HostRanks& ranks : hosts) {
    commands.push_back({.words = host_words(options, ranks),
                        .order = {.ranks = ranks,
                                  .world_size = hosts.back().first + hosts.back().count,
                                  .arguments = options.command,
                                  .variables = variables}});
  }
  return commands;
}

/// As a person could type it; on standard input goes what the comment says, and a secret.
std::string dry_run_text(const std::vector<HostCommand>& commands) {
  std::string text;
  for (const HostCommand& command : commands) {
    text += fmt::format("{}   # {} of {}: {}\n", shell_words(command.words), to_text(command.order.ranks),
                        command.order.world_size, shell_words(command.order.arguments));
  }
  return text;
}

int start(std::vector<HostCommand> commands) {
  const std::string secret = make_secret();
  for (HostCommand& command : commands) {
    command.order.variables.push_back(fmt::format("{}={}", kSecretVariable, secret));
  }
  return launch_on_hosts(commands);
}

void add_flags(CLI::App& command, Options& options) {
  begin_group(command, heading::kRunning);
  command
      .add_option("--hosts", options.hosts,
                  "hosts and how many ranks each has, in the order of ranks; ssh names them "
                  "(default: this machine, without ssh)")
      ->type_name("HOST[:N],..");
  add_count(command, "--nproc", options.ranks, "ranks of a host that has no number of its own (default 1)");
  command
      .add_option("--ssh", options.ssh,
                  "command that runs another one on a host; the host and the command are added "
                  "to it (default 'ssh -o BatchMode=yes')")
      ->type_name("COMMAND");
  add_path(command, "--program", options.program, "chimera on the hosts (default: the path of this one)");
  command
      .add_option("--master", options.master,
                  "name or address of the first host as the others know it (default: as in --hosts)")
      ->type_name("HOST");
  add_count(command, "--port", options.port, "TCP port of the first host where the ranks meet (default: any)");
  command
      .add_option("--variable", options.variables,
                  "environment variable that ranks get besides CHIMERA_*, OMP_*, MKL_*, KMP_*, GLOO_*, NCCL_*, TORCH_* "
                  "and CUDA_*; may be repeated")
      ->type_name("NAME[=VALUE]");
  command.add_flag("--dry-run", options.dry_run, "start nothing, but print the command for each host")->type_name("");
  command.add_flag("--part", options.part)->group("");
  command.add_option("command", options.command, "train, or profile --between, and its flags, behind --")
      ->type_name("-- train ...");
}

}  // namespace

void add_launch(CLI::App& program, int& exit_code) {
  auto* command = program.add_subcommand("launch", "Start the ranks of a training run on several hosts");
  command->footer(
      "Examples:\n"
      "  chimera launch --hosts a,b --nproc 4 -- train --data book.txt --stages 8\n"
      "  chimera launch --hosts a:4,b:2,c:2 --ssh 'ssh -p 2222 -o BatchMode=yes' -- train --data book.txt --stages 8\n"
      "  chimera launch --hosts a,b --dry-run -- train --data book.txt --stages 2\n"
      "  chimera launch --hosts a,b -- profile --between here.json --output cluster.json   # their links\n"
      "\nFor clusters without a scheduler; with SLURM use srun (docs/clusters.md). Hosts need the same program at the "
      "same path, or --program, the folder in which this is called, and the data. Ranks are numbered host by host. "
      "They meet at the first host, and know a secret that is made for each job and travels over ssh's standard "
      "input.\n"
      "\nWhere a rank fails its own words come first, then which host it was on, and all ranks on all hosts end; so "
      "they do when this command dies or a connection breaks. The first SIGTERM, SIGHUP or SIGUSR1 has a run with "
      "--checkpoint save; Ctrl-C ends it.\n"
      "\nExit codes are those of `chimera train`.");
  auto options = std::make_shared<Options>();
  add_flags(*command, *options);
  command->callback([options, &exit_code] {
    if (options->part) {
      exit_code = run_part(STDIN_FILENO);
      return;
    }
    auto commands = host_commands(*options);
    if (options->dry_run) return write_output("", dry_run_text(commands));
    exit_code = start(std::move(commands));
  });
}

}  // namespace chimera::apps
