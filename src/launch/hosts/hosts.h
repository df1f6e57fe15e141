#pragma once

// Hosts of `chimera launch --hosts`: lists of hosts on the command line (a,b:4), RemoteJob, the job of ranks on these
// hosts, and AgentOrder, the line of JSON that starts one of the ranks. remote_rank.h starts and ends the ranks.

#include <string>
#include <string_view>
#include <vector>

#include "launch/local/process.h"

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

/// Order to an agent, the process that starts and ends a rank on its host (remote_rank.h).
struct AgentOrder {
  int rank = 0;
  int world_size = 1;                  ///< Ranks of all hosts
  std::vector<std::string> arguments;  ///< argv[1..] of the rank
  Variables variables;                 ///< Rendezvous, secret, user settings
  bool recovers = false;               ///< Whether the rank gets orders of recoveries (launch/local/recovery.h)
};

/// Returns the order as a line of JSON.
[[nodiscard]] std::string to_line(const AgentOrder& order);
/// Parses to_line(). Throws ConfigError if the line is malformed.
[[nodiscard]] AgentOrder parse_order(const std::string& line);

/// Environment variable with the path of a file with a RemoteJob. `chimera launch` sets it for the `chimera train` that
/// supervises the job.
inline constexpr const char* kRemoteVariable = "CHIMERA_REMOTE_JOB";

/// A host of a RemoteJob.
struct RemoteHost {
  HostRanks ranks;
  std::string address;               ///< Name or address at which other hosts reach this host
  std::vector<std::string> program;  ///< Command that runs chimera on the host; see command_on()
};

/// Returns the command line that runs chimera with `arguments` on the host, in the job's folder.
[[nodiscard]] std::vector<std::string> command_on(const RemoteHost& host, const std::vector<std::string>& arguments);

/// A job on several hosts. The launcher reaches each rank through two processes, a relay and an agent (remote_rank.h).
/// `hosts` is not empty.
struct RemoteJob {
  std::vector<RemoteHost> hosts;        ///< In rank order
  std::vector<RemoteHost> spares = {};  ///< In order of preference; `count` is the maximum number of ranks
  /// TCP port of the rendezvous when the job starts. Each generation, in which ranks meet again after a loss or return,
  /// takes the next port. 0: any free port each time.
  int port = 0;
  Variables variables;                      ///< For all ranks: settings of the user
  std::vector<std::string> typed;           ///< Command line of the user, for messages
  std::vector<std::string> arguments = {};  ///< argv[1..] of every rank

  [[nodiscard]] int ranks() const { return hosts.back().ranks.first + hosts.back().ranks.count; }
  /// Returns the host of a rank.
  [[nodiscard]] const RemoteHost& host_of(int rank) const;
};

/// Returns the job as JSON.
[[nodiscard]] std::string to_text(const RemoteJob& job);
/// Reads the JSON of a job from a file. Throws ConfigError if the file is malformed.
[[nodiscard]] RemoteJob read_remote_job(const std::string& path);

/// Returns the environment variables of this process that ranks on other hosts need, too: settings of
/// Chimera, LibTorch and its libraries, but not ranks, addresses and secrets.
[[nodiscard]] Variables variables_for_others();

}  // namespace chimera
