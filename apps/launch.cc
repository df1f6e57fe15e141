// `chimera launch` starts ranks on several hosts. For `train`, it becomes (by exec) a `chimera train` on this machine
// that supervises the ranks as always, but through relays: one process each that connects a rank's channels with an
// agent on its host. So launch knows nothing of training, and train learns of the hosts only from a file in memory. For
// `profile --between`, launch supervises the two ranks itself.

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "commands.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/reject.h"
#include "core/shell_words.h"
#include "flags/hosts.h"
#include "flags/outputs.h"
#include "flags/values.h"
#include "help.h"
#include "launch/hosts/remote_rank.h"
#include "launch/local/launcher.h"

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
  bool agent = false;
  bool relay = false;
  Words command;
};

/// The last value counts.
std::optional<std::string> value_of(const std::string& flag, const Words& words) {
  std::optional<std::string> value;
  for (std::size_t i = 0; i < words.size(); ++i) {
    // The words are those of another command, so CLI11 has not parsed them here: both forms of a flag are possible.
    if (words[i] == flag && i + 1 < words.size()) value = words[i + 1];
    if (words[i].starts_with(flag + "=")) value = words[i].substr(flag.size() + 1);
  }
  return value;
}

// find() + 1 is 0 without a user, since npos + 1 is.
std::string name_of(const std::string& host) { return host.substr(host.find('@') + 1); }

std::vector<HostRanks> hosts_of(const LaunchArguments& options) {
  return parse_hosts(options.on.hosts.empty() ? "localhost" : options.on.hosts, static_cast<int>(options.ranks));
}

/// A spare without a number gets as many ranks as needed.
std::vector<HostRanks> spares_of(const LaunchArguments& options) {
  if (options.spares.empty()) return {};
  if (options.on.hosts.empty() || options.max_restarts == 0)
    reject("--spare takes the place of a lost host; give --hosts and --max-restarts too");
  const std::vector<HostRanks> hosts = hosts_of(options);
  std::vector<HostRanks> spares = parse_hosts(options.spares, kMaxRanksOfHost, "--spare");
  for (const HostRanks& spare : spares) {
    const auto same = [&](const HostRanks& host) { return host.host == spare.host; };
    if (std::ranges::any_of(hosts, same)) reject("--spare {}: it is in --hosts", spare.host);
  }
  return spares;
}

Variables user_variables(const LaunchArguments& options) {
  Variables variables = variables_for_others();
  // NAME=VALUE sets a value, NAME takes the value of this process.
  for (const std::string& each : options.variables) {
    const std::string name = each.substr(0, each.find('='));
    const char* value = name == each ? std::getenv(each.c_str()) : each.c_str() + name.size() + 1;
    if (value == nullptr) reject("--variable {}: it is not set here; give NAME=VALUE", each);
    variables[name] = value;
  }
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
    reject(
        "expected `--` and the command whose ranks are started: chimera launch --hosts a,b -- train ..., or "
        "profile --between ...");
  }
  require_between("--nproc", options.ranks, 1, kMaxRanksOfHost);
  require_between("--max-restarts", options.max_restarts, 0, 1'000'000'000);
  if (options.port != 0) require_between("--port", options.port, 1, 65535);
  // Checked here, because `train` would refuse a --max-restarts that the user has not given to it.
  if (options.max_restarts > 0 && recovers(options))
    reject("--max-restarts: a job with --recover twin or reroute does not restart; leave out one of them");
  if (options.max_restarts > 0 && (!trains(options) || !value_of("--checkpoint", options.command)))
    reject("--max-restarts continues from checkpoints; give `train` --checkpoint FOLDER after the --");
}

RemoteJob remote_job(const LaunchArguments& options, const Words& typed) {
  RemoteJob job{.hosts = {},
                .port = static_cast<int>(options.port),
                .variables = user_variables(options),
                .typed = typed,
                .arguments = options.command};
  const auto remote_host = [&](const HostRanks& ranks) {
    const std::string name = options.on.hosts.empty() ? "127.0.0.1" : name_of(ranks.host);
    return RemoteHost{.ranks = ranks, .address = name, .program = remote_command(options.on, ranks.host, {})};
  };
  for (const HostRanks& ranks : hosts_of(options)) job.hosts.push_back(remote_host(ranks));
  for (const HostRanks& ranks : spares_of(options)) job.spares.push_back(remote_host(ranks));
  if (!options.on.master.empty()) job.hosts.front().address = options.on.master;
  return job;
}

/// Replaces this process by a `chimera train` that supervises the ranks of all hosts. The job is in a memory file.
void train_on_hosts(const LaunchArguments& options, const RemoteJob& job) {
  FileDescriptor file = make_memory_file("chimera-job", 0);
  if (write_all(file.get(), to_text(job)) != 0) throw Error("cannot write a file in memory");
  // The file has no name and no other user can read it, unlike the environment or a file in /tmp.
  check_system(::fcntl(file.get(), F_SETFD, 0), "pass on a file");
  ::setenv(kRemoteVariable, fmt::format("/proc/self/fd/{}", file.release()).c_str(), /*overwrite=*/1);
  std::string program = own_executable();
  Words words = options.command;
  if (options.max_restarts > 0) words.insert(words.end(), {"--max-restarts", std::to_string(options.max_restarts)});
  std::vector<char*> pointers = {program.data()};
  for (std::string& word : words) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  // exec instead of a child, so that signals and the exit code are those of the training itself.
  ::execv(program.c_str(), pointers.data());
  check_system(-1, "start " + program);
}

std::string dry_run_text(const RemoteJob& job) {
  std::string text;
  for (const RemoteHost& host : job.hosts) {
    text += fmt::format("{}   # {} of {}: {}\n", shell_words(command_on(host, {"launch", "--agent"})),
                        to_text(host.ranks), job.ranks(), shell_words(job.arguments));
  }
  return text;
}

int start(const LaunchArguments& options, const RemoteJob& job) {
  if (trains(options)) train_on_hosts(options, job);
  LaunchPlan plan{.ranks = job.ranks(), .arguments = options.command};
  use_relays(plan, job);
  return launch(plan);
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
  add_string(command, "--spare", options.spares, "HOSTS",
             "hosts that replace unreachable hosts, with their maximum numbers of ranks (default: as many as the lost "
             "host)");
  command
      .add_option("--variable", options.variables,
                  "environment variable for the ranks besides CHIMERA_*, OMP_*, MKL_*, KMP_*, GLOO_*, NCCL_*, TORCH_* "
                  "and CUDA_*; repeatable")
      ->type_name("NAME[=VALUE]");
  command.add_flag("--dry-run", options.dry_run, "print the command for each host and start nothing")->type_name("");
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
    // A host runs this command again with --agent. It reads its order, with the secret, from standard input, because a
    // command line is visible to all users of the host.
    if (options->agent || (options->relay && invocation.rank)) {
      exit_code = options->agent ? run_agent(STDIN_FILENO) : run_relay(*invocation.rank);
      return;
    }
    check_flags(*options);
    require_effect(*command, {"--ssh", "--master"}, command->count("--hosts") > 0, "--hosts");
    const RemoteJob job = remote_job(*options, invocation.arguments);
    if (options->dry_run) return write_output("", dry_run_text(job));
    exit_code = start(*options, job);
  });
}

}  // namespace chimera::apps
