#pragma once

// Lists of hosts on the command line (a,b:4), and the order that the launcher sends to each host: its ranks, their
// arguments and their environment, as one line of JSON.

#include <string>
#include <string_view>
#include <vector>

namespace chimera {

struct HostRanks {
  std::string host;  ///< Name, address, or USER@NAME, as in ssh
  int first = 0;
  int count = 1;
};

/// Parses "a,b:4,[fd00::1]:2"; a host without a number has `otherwise` ranks. Throws ConfigError, naming `flag`, for an
/// invalid number or name, or a duplicate.
[[nodiscard]] std::vector<HostRanks> parse_hosts(std::string_view list, int otherwise, const char* flag = "--hosts");

/// Returns "ranks 4 .. 7 on b" or "rank 4 on b".
[[nodiscard]] std::string to_text(const HostRanks& ranks);

struct HostOrder {
  HostRanks ranks;
  int world_size = 1;
  std::vector<std::string> arguments;  ///< argv[1..] of every rank
  std::vector<std::string> variables;  ///< NAME=value: rendezvous, secret, user settings
};

[[nodiscard]] std::string to_line(const HostOrder& order);
/// Parses to_line(). Throws ConfigError if the line is malformed.
[[nodiscard]] HostOrder parse_order(const std::string& line);

/// Returns variables (NAME=value) of Chimera, LibTorch and its libraries, except ranks, addresses and secrets.
[[nodiscard]] std::vector<std::string> variables_for_others();

}  // namespace chimera
