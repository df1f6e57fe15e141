#pragma once
// A job over several hosts: which ranks each of them has, and what it is told to start.

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace chimera {

/// The ranks of one host.
struct HostRanks {
  std::string host;  ///< as ssh takes it: a name, an address, USER@NAME
  int first = 0;
  int count = 1;
};

/// That a list may give to one host.
inline constexpr int kMostRanksOfAHost = 1024;

/// "a,b:4,[fd00::1]:2" with `otherwise` ranks where a host does not say how many; in that order. Throws ConfigError for
/// a number that is none, a host without a name, and one that comes twice; it names the flag that gave the list.
[[nodiscard]] std::vector<HostRanks> parse_hosts(std::string_view list, int otherwise, const char* flag = "--hosts");

/// "ranks 4 .. 7 on b", "rank 4 on b".
[[nodiscard]] std::string to_text(const HostRanks& ranks);

/// What a host is to start: its part of the job.
struct PartOrder {
  HostRanks ranks;
  int world_size = 1;
  std::vector<std::string> arguments;  ///< argv[1..] of every rank
  std::vector<std::string> variables;  ///< NAME=value: where ranks meet, their secret, what the user has set
};

/// One line, without its end.
[[nodiscard]] std::string to_line(const PartOrder& order);
/// Throws ConfigError where the line is none.
[[nodiscard]] PartOrder parse_part(const std::string& line);

/// The variables of this process that ranks on other hosts should have too: those of Chimera, LibTorch and the
/// libraries below it, but none that places a process. NAME=value.
[[nodiscard]] std::vector<std::string> variables_for_others();

}  // namespace chimera
