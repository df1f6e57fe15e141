#pragma once

// The flags of a job on several hosts (--hosts, --ssh, ...), and the command line that starts a program on one of them.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "launch/local/launcher.h"

namespace chimera::apps {

struct HostFlags {
  std::string hosts;  ///< list for parse_hosts(); empty: this machine only
  std::string ssh = "ssh -o BatchMode=yes";
  std::string program = own_executable();
  std::string master;  ///< address of the first host, as other hosts reach it; empty: its name in `hosts`
};

void add_hosts(CLI::App& command, HostFlags& flags, const std::string& help);
void add_ways_to_hosts(CLI::App& command, HostFlags& flags);

/// The command runs `program` on a host, in a folder with the path of the current folder; without `hosts`, on this
/// machine. Throws ConfigError if --ssh is blank.
[[nodiscard]] std::vector<std::string> program_on(const HostFlags& flags, const std::string& host,
                                                  const std::vector<std::string>& arguments);

}  // namespace chimera::apps
