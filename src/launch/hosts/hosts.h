#pragma once

// Hosts of `chimera launch --hosts`: lists of hosts on the command line (a,b:4), and HostOrder, the line of JSON that
// the launcher sends to each host. It holds the ranks of the host, their arguments and their environment;
// run_host_ranks() (host_ranks.h) executes it.

#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// A host and its range of ranks.
struct HostRanks {
  std::string host;  ///< Name, address, or USER@NAME, as in ssh
  int first = 0;     ///< First rank
  int count = 1;     ///< Number of ranks
};

/// Parses "a,b:4,[fd00::1]:2"; a host without a number has `otherwise` ranks. Throws ConfigError, naming `flag`, for an
/// invalid number or name, or a duplicate.
[[nodiscard]] std::vector<HostRanks> parse_hosts(std::string_view list, int otherwise, const char* flag = "--hosts");

/// Returns "ranks 4 .. 7 on b" or "rank 4 on b".
[[nodiscard]] std::string to_text(const HostRanks& ranks);

/// The ranks of one host, and the arguments and variables of each.
struct HostOrder {
  HostRanks ranks;
  int world_size = 1;                  ///< Ranks of all hosts
  std::vector<std::string> arguments;  ///< argv[1..] of every rank
  std::vector<std::string> variables;  ///< NAME=value: rendezvous, secret, user settings
};

/// Returns the order as a line of JSON.
[[nodiscard]] std::string to_line(const HostOrder& order);
/// Parses to_line(). Throws ConfigError if the line is malformed.
[[nodiscard]] HostOrder parse_order(const std::string& line);

/// Returns the environment variables (NAME=value) of this process that ranks on other hosts need, too: settings of
/// Chimera, LibTorch and its libraries, but not ranks, addresses and secrets.
[[nodiscard]] std::vector<std::string> variables_for_others();

}  // namespace chimera
