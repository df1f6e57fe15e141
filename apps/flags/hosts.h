#pragma once

// The flags of a job on several hosts (--hosts, --ssh, ...), and the command line that starts a program on one of them.

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "launch/local/launcher.h"

namespace chimera::apps {

/// Values of these flags.
struct HostFlags {
  std::string hosts;                         ///< value of --hosts, such as `a:2,b:2`; empty: this machine only
  std::string ssh = "ssh -o BatchMode=yes";  ///< command that runs another command on a host
  std::string program = own_executable();    ///< path of chimera on the hosts
  std::string master;  ///< address of the first host, as other hosts reach it; empty: its name in `hosts`
};

/// Adds --hosts with this help text.
void add_hosts(CLI::App& command, HostFlags& flags, const std::string& help);
/// Adds --ssh, --program and --master.
void add_ssh_flags(CLI::App& command, HostFlags& flags);

/// Returns the command line that runs HostFlags::program with `arguments` on `host` over ssh, in the folder that has
/// the path of the current folder. If HostFlags::hosts is empty, the command runs on this machine. `arguments` may be
/// empty: command_on() (launch/hosts/hosts.h) then appends the arguments of a rank. Throws ConfigError if --ssh is
/// blank.
[[nodiscard]] std::vector<std::string> remote_command(const HostFlags& flags, const std::string& host,
                                                      const std::vector<std::string>& arguments);

}  // namespace chimera::apps
