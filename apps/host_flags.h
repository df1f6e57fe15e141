#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "launch/local/launcher.h"

namespace chimera::apps {

struct HostFlags {
  std::string hosts;  ///< for parse_hosts(); empty: this machine only
  std::string ssh = "ssh -o BatchMode=yes";
  std::string program = own_executable();
  std::string master;  ///< address of the first host for the others; empty: its name in `hosts`
};

void add_hosts(CLI::App& command, HostFlags& flags, const std::string& help);
/// Adds --ssh, --program and --master.
void add_ways_to_hosts(CLI::App& command, HostFlags& flags);

/// Returns the local command that runs this program on a host, in the current folder. Throws ConfigError if --ssh is
/// blank.
[[nodiscard]] std::vector<std::string> program_on(const HostFlags& flags, const std::string& host,
                                                  const std::vector<std::string>& arguments);

}  // namespace chimera::apps
