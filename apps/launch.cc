#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <optional>

#include "checkpoint/checkpoint_folder.h"
#include "commands.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/shell_words.h"
#include "flags/hosts.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "launch/hosts/host_launcher.h"
#include "launch/hosts/host_ranks.h"
#include "launch/hosts/host_restarts.h"
#include "launch/hosts/remote_rank.h"
#include "launch/local/launcher.h"
#include "launch/local/place.h"
#include "program.h"
#include "rendezvous/channel.h"

namespace chimera::apps {
namespace {

using Words = std::vector<std::string>;

struct LaunchArguments {
  HostFlags on;
  std::string spares;
  std::int64_t ranks = 1;
  std::int64_t max_restarts = 0;
  std::int64_t port = 0;
  Words variables;
  bool dry_run = false;
  bool part = false;
  bool agent = false;
  bool relay = false;
  Words command;
};

/// The port is below the ephemeral range.
std::int64_t any_port() {
  // A random port avoids the ports of other jobs on the same host; a free one cannot be asked for, because the ranks
  // that listen are on another host.
  const Digest numbers = random_nonce();
  return 20000 + (numbers[0] * 256 + numbers[1]) % 10000;
}

/// The last value counts.
std::optional<std::string> value_of(const std::string& flag, const Words& words) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i] == flag && i + 1 < words.size()) value = words[i + 1];
    if (words[i].starts_with(flag + "=")) value = words[i].substr(flag.size() + 1);
  }
  return value;
}

std::string name_of(const std::string& host) { return host.substr(host.find('@') + 1); }

std::vector<HostRanks> hosts_of(const LaunchArguments& options) {
  return parse_hosts(options.on.hosts.empty() ? "localhost" : options.on.hosts, static_cast<int>(options.ranks));
}

/// A spare without a number gets as many ranks as needed.
std::vector<HostRanks> spares_of(const LaunchArguments& options) {
  if (options.spares.empty()) return {};
  if (options.on.hosts.empty() || options.max_restarts == 0) {
    throw ConfigError("--spare takes the place of a lost host; give --hosts and --max-restarts too");
  }
  const std::vector<HostRanks> hosts = hosts_of(options);
  std::vector<HostRanks> spares = parse_hosts(options.spares, kMaxRanksOfHost, "--spare");
  for (const HostRanks& spare : spares) {
    const auto same = [&](const HostRanks& host) { return host.host == spare.host; };
    if (std::ranges::any_of(hosts, same)) throw ConfigError(fmt::format("--spare {}: it is in --hosts", spare.host));
  }
  return spares;
}

Words user_variables(const LaunchArguments& options) {
  Words variables = variables_for_others();
  // NAME=VALUE sets a value, NAME takes the value of this process.
  for (const std::string& each : options.variables) {
    const char* own = each.find('=') == std::string::npos ? std::getenv(each.c_str()) : "";
    if (own == nullptr) throw ConfigError(fmt::format("--variable {}: it is not set here; give NAME=VALUE", each));
    variables.push_back(*own == '\0' ? each : fmt::format("{}={}", each, own));
  }
  return variables;
}

Words variables_of(const LaunchArguments& options, const std::vector<HostRanks>& hosts) {
  Words variables = user_variables(options);
  // --master is the address of the original first host
  const bool is_first = hosts.front().host == hosts_of(options).front().host;
  const std::string master = options.on.hosts.empty() ? "127.0.0.1" : name_of(hosts.front().host);
  const bool is_given = is_first && !options.on.master.empty();
  variables.push_back(fmt::format("{}={}", kMasterAddressVariable, is_given ? options.on.master : master));
  variables.push_back(fmt::format("{}={}", kMasterPortVariable, options.port > 0 ? options.port : any_port()));
  return variables;
}

bool trains(const LaunchArguments& options) {
  return !options.command.empty() && options.command.front() == kTrain.name;
}

/// Returns whether the job continues after the loss of ranks.
bool recovers(const LaunchArguments& options) {
  const auto way = trains(options) ? value_of("--recover", options.command) : std::nullopt;
  return way == "twin" || way == "reroute";
}

void check_flags(const LaunchArguments& options) {
  if (!trains(options) && !measures_between_hosts(options.command)) {
    throw ConfigError(
        "expected `--` and the command whose ranks are started: chimera launch --hosts a,b -- train ..., or "
        "profile --between ...");
  }
  require_between("--nproc", options.ranks, 1, kMaxRanksOfHost);
  require_between("--max-restarts", options.max_restarts, 0, 1'000'000'000);
  if (options.port != 0) require_between("--port", options.port, 1, 65535);
  if (options.max_restarts > 0 && recovers(options)) {
    throw ConfigError("--max-restarts: a job with --recover twin or reroute does not restart; leave out one of them");
  }
  if (options.max_restarts > 0 && (!trains(options) || !value_of("--checkpoint", options.command))) {
    throw ConfigError("--max-restarts continues from checkpoints; give `train` --checkpoint FOLDER after the --");
  }
}

std::vector<HostCommand> host_commands(const LaunchArguments& options, const std::vector<HostRanks>& hosts,
                                       const Words& arguments) {
  // All hosts get the same variables: the address of the first host, the port, and the variables of --variable.
  const Words variables = variables_of(options, hosts);
  std::vector<HostCommand> commands;
  for (const HostRanks& ranks : hosts) {
    commands.push_back({.words = remote_command(options.on, ranks.host, {"launch", "--part"}),
                        .order = {.ranks = ranks,
                                  .world_size = hosts.back().first + hosts.back().count,
                                  .arguments = arguments,
                                  .variables = variables}});
  }
  return commands;
}

RemoteJob remote_job(const LaunchArguments& options, const Words& typed) {
  RemoteJob job{.hosts = {},
                .port = static_cast<int>(options.port > 0 ? options.port : any_port()),
                .variables = user_variables(options),
                .typed = typed};
  job.variables.push_back(fmt::format("{}={}", kSecretVariable, make_secret()));
  for (const HostRanks& ranks : hosts_of(options)) {
    const std::string name = options.on.hosts.empty() ? "127.0.0.1" : name_of(ranks.host);
    job.hosts.push_back({.ranks = ranks,
                         .address = ranks.first == 0 && !options.on.master.empty() ? options.on.master : name,
                         .agent = remote_command(options.on, ranks.host, {"launch", "--agent"}),
                         .probe = remote_command(options.on, ranks.host, {"--version"})});
  }
  return job;
}

/// Replaces this process by a `chimera train` that supervises the ranks of all hosts. The job, with the secret, is in a
/// memory file.
void train_on_hosts(const LaunchArguments& options, const Words& typed) {
  FileDescriptor file = make_memory_file("chimera-job", 0);
  if (write_all(file.get(), to_text(remote_job(options, typed))) != 0) throw Error("cannot write a file in memory");
  check_system(::fcntl(file.get(), F_SETFD, 0), "pass on a file");
  ::setenv(kRemoteVariable, fmt::format("/proc/self/fd/{}", file.release()).c_str(), /*overwrite=*/1);
  std::string program = own_executable();
  Words words = options.command;
  std::vector<char*> pointers = {program.data()};
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  ::execv(program.c_str(), pointers.data());
  check_system(-1, "start " + program);
}

std::string dry_run_text(const std::vector<HostCommand>& commands) {
  std::string text;
  for (const HostCommand& command : commands) {
    text += fmt::format("{}   # {} of {}: {}\n", shell_words(command.words), to_text(command.order.ranks),
                        command.order.world_size, shell_words(command.order.arguments));
  }
  return text;
}

/// The ranks verify the hashes, and may choose an older checkpoint.
HostResume resume_of(const LaunchArguments& options) {
  const std::string folder = *value_of("--checkpoint", options.command);
  const auto newest = newest_checkpoint(folder, 0).checkpoint;
  HostResume resume{0, {}, fmt::format("no checkpoint is seen in {}", folder)};
  if (newest) resume = {newest->manifest.step, {}, fmt::format("continues from {}", newest->path)};
  // A --resume of the user names the start of the first attempt. It stays until the job has saved.
  if (newest || !value_of("--resume", options.command)) resume.arguments = {"--resume", "auto"};
  return resume;
}

int start(const LaunchArguments& options) {
  const auto commands_for = [&](const std::vector<HostRanks>& hosts, const Words& arguments) {
    std::vector<HostCommand> commands = host_commands(options, hosts, arguments);
    // A new secret for each attempt: a rank of the last attempt that lives on cannot join this one.
    const std::string secret = make_secret();
    for (HostCommand& command : commands) {
      command.order.variables.push_back(fmt::format("{}={}", kSecretVariable, secret));
    }
    return commands;
  };
  return launch_on_hosts({.hosts = hosts_of(options),
                          .spares = spares_of(options),
                          .arguments = options.command,
                          .start = commands_for,
                          .remote_command = [&](const std::string& host,
                                                const Words& words) { return remote_command(options.on, host, words); },
                          .most_restarts = static_cast<int>(options.max_restarts),
                          .resume = [&] { return resume_of(options); }});
}

void add_flags(CLI::App& command, LaunchArguments& options) {
  begin_group(command, heading::kRunning);
  add_hosts(command, options.on,
            "hosts with their numbers of ranks, such as a:4,b:2, in rank order; reached by ssh (default: this machine, "
            "without ssh)");
  add_count(command, "--nproc", options.ranks, "ranks of each host without a number of its own (default 1)");
  add_ssh_flags(command, options.on);
  add_count(command, "--port", options.port, "TCP port of the rendezvous on the first host (default: any)");
  add_count(command, "--max-restarts", options.max_restarts,
            "how often a failed job is restarted from its newest checkpoint: on the remaining hosts, on spares, or "
            "with fewer ranks (default 0)");
  command
      .add_option("--spare", options.spares,
                  "hosts that replace unreachable hosts, with their maximum numbers of ranks (default: as many as the "
                  "lost host)")
      ->type_name("HOSTS");
  command
      .add_option("--variable", options.variables,
                  "environment variable for the ranks besides CHIMERA_*, OMP_*, MKL_*, KMP_*, GLOO_*, NCCL_*, TORCH_* "
                  "and CUDA_*; repeatable")
      ->type_name("NAME[=VALUE]");
  command.add_flag("--dry-run", options.dry_run, "print the command for each host and start nothing")->type_name("");
  command.add_flag("--part", options.part)->group("");
  command.add_flag("--agent", options.agent)->group("");
  command.add_flag("--relay", options.relay)->group("");
  command.add_option("COMMAND", options.command, "train, or profile --between, with its flags, after --");
}

}  // namespace

void add_launch(CLI::App& program, const Invocation& invocation, int& exit_code) {
  auto* command = program.add_subcommand("launch", "Start the ranks of a training run on several hosts");
  command->footer(
      "Examples:\n"
      "  chimera launch --hosts a,b --nproc 4 -- train --data book.txt --stages 8\n"
      "  chimera launch --hosts a:4,b:2,c:2 --ssh 'ssh -p 2222 -o BatchMode=yes' -- train --data book.txt --stages 8\n"
      "  chimera launch --hosts a,b --dry-run -- train --data book.txt --stages 2\n"
      "  chimera launch --hosts a,b --spare c --max-restarts 5 -- train --data book.txt --stages 2 --checkpoint run\n"
      "  chimera launch --hosts a,b -- profile --between here.json --output cluster.json   # their links\n"
      "\nFor clusters without a scheduler; with SLURM use srun. All hosts need the program at the same path (or "
      "--program), the current folder, and the data. Ranks find each other at the first host, with a secret that "
      "travels over ssh.\n"
      "\nIf a rank or a connection fails, or this command dies, all ranks on all hosts end. The first SIGTERM, SIGHUP, "
      "SIGUSR1 or SIGUSR2 makes a run with --checkpoint save; Ctrl-C ends it. `train --recover twin` or `reroute` "
      "continues without lost ranks and hosts. --max-restarts needs checkpoints that all hosts can read. Exit codes "
      "are those of `chimera train`.\n"
      "\nMore: docs/clusters.md");
  auto options = std::make_shared<LaunchArguments>();
  add_flags(*command, *options);
  command->callback([command, options, &invocation, &exit_code] {
    // A host runs this command again with --part. It reads its order, with the secret, from standard input, because a
    // command line is visible to all users of the host.
    if (options->part) {
      exit_code = run_host_ranks(STDIN_FILENO);
      return;
    }
    if (options->agent || (options->relay && invocation.rank)) {
      exit_code = options->agent ? run_agent(STDIN_FILENO) : run_relay(*invocation.rank);
      return;
    }
    check_flags(*options);
    require_effect(*command, {"--ssh", "--master"}, command->count("--hosts") > 0, "--hosts");
    // Checks --spare also in a dry run.
    static_cast<void>(spares_of(*options));
    if (options->dry_run) {
      return write_output("", dry_run_text(host_commands(*options, hosts_of(*options), options->command)));
    }
    if (recovers(*options)) train_on_hosts(*options, invocation.arguments);
    exit_code = start(*options);
  });
}

}  // namespace chimera::apps
