#include "profile_hosts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <chrono>
#include <iostream>
#include <vector>

#include "commands.h"
#include "core/error.h"
#include "launch/hosts/hosts.h"
#include "launch/local/ask.h"
#include "own_command.h"
#include "plan/merge_machines.h"
#include "plan/node_links.h"

namespace chimera::apps {
namespace {

using Words = std::vector<std::string>;

constexpr std::chrono::hours kPatience{6};  // for hosts that measure large models; Ctrl-C ends it

Words options_as_words(const ProfileOptions& options) {
  return {"--model",
          fmt::format("{}", fmt::join(options.models, ",")),
          "--sequence",
          std::to_string(options.sequence),
          "--dtype",
          to_text(options.dtype),
          "--threads",
          std::to_string(options.threads),
          "--seconds",
          fmt::format("{}", options.seconds),
          "--format",
          "json",
          "--micro-batch-sizes",
          fmt::format("{}", fmt::join(options.micro_batch_sizes, ","))};
}

std::vector<MachineProfile> measure_each(const HostFlags& flags, const std::vector<HostRanks>& hosts,
                                         const ProfileOptions& options) {
  std::vector<Words> commands;
  for (const HostRanks& host : hosts) {
    Words words = options_as_words(options);
    words.insert(words.begin(), kProfile.name);
    commands.push_back(program_on(flags, host.host, words));
  }
  std::cerr << fmt::format("{} hosts measure themselves, for {:g} s or more\n", hosts.size(), options.seconds);
  const SignalInbox signals;
  const auto replies = ask(commands, kPatience, signals);
  if (signals.waiting()) throw Error("ended by a signal");
  std::vector<MachineProfile> machines;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const std::string& host = hosts[i].host;
    if (!replies[i]) throw Error(fmt::format("host {} has not measured itself within {} h", host, kPatience.count()));
    if (replies[i]->exit_code != 0) {
      throw Error(fmt::format("host {} does not measure itself: {}", host, last_line(replies[i]->errors)));
    }
    machines.push_back(machine_from_json(replies[i]->output, "the profile of host " + host));
  }
  return machines;
}

/// Between the first two hosts.
NodeLinks measure_links(const HostFlags& flags, const std::vector<HostRanks>& hosts, double seconds,
                        const std::string& interface) {
  const std::string pair = hosts[0].host + "," + hosts[1].host;
  Words words = {"launch", "--hosts", pair, "--ssh", flags.ssh, "--program", flags.program};
  if (!flags.master.empty()) words.insert(words.end(), {"--master", flags.master});
  words.insert(words.end(), {"--", kProfile.name, kLinksFlag, "--seconds", fmt::format("{}", seconds)});
  if (!interface.empty()) words.insert(words.end(), {"--interface", interface});
  std::cerr << fmt::format("{} and {} measure the links between them\n", hosts[0].host, hosts[1].host);
  const CommandResult measured = run_own(words);
  if (measured.exit_code != 0) throw Error(fmt::format("the links between {} are not measured", pair));
  return node_links_from_json(measured.output, "the links between " + pair);
}

}  // namespace

MachineProfile profile_hosts(const HostFlags& flags, const ProfileOptions& options, const std::string& interface) {
  constexpr int kNotGiven = 0;  // as with_links_between() has it
  const std::vector<HostRanks> hosts = parse_hosts(flags.hosts, kNotGiven);
  if (hosts.size() < 2) throw ConfigError("--hosts: give two hosts or more, as in a,b, to measure what lies between");
  const int ranks = hosts.front().count;
  for (const HostRanks& host : hosts) {
    if (host.count != ranks)
      throw ConfigError(
          "--hosts: give all hosts as many ranks, as in a:2,b:2, or none a number; a plan wants nodes "
          "that are alike");
  }
  const MachineProfile machine = merge_machines(measure_each(flags, hosts, options));
  return with_links_between(machine, measure_links(flags, hosts, options.seconds, interface), ranks);
}

}  // namespace chimera::apps
