#pragma once
// Flags that say which hosts a command runs on, and how it gets there.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "launch/local/launcher.h"

namespace chimera::apps {

struct HostFlags {
  std::string hosts;  ///< as parse_hosts() takes them; empty: this machine alone
  std::string ssh = "ssh -o BatchMode=yes";
  std::string program = own_executable();
  std::string master;  ///< the first host as the others know it; empty: by its name in `hosts`
};

/// --hosts with this help text.
void add_hosts(CLI::App& command, HostFlags& flags, const std::string& help);
/// --ssh, --program and --master.
void add_ways_to_hosts(CLI::App& command, HostFlags& flags);

/// The words that, run here, run the program with these arguments on a host, in the folder in which this one runs.
/// Throws ConfigError where --ssh has no words.
[[nodiscard]] std::vector<std::string> program_on(const HostFlags& flags, const std::string& host,
                                                  const std::vector<std::string>& arguments);

}  // namespace chimera::apps
