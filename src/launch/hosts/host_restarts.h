#pragma once

// Restarts a job on several hosts after a failure. Before a new attempt, the launcher runs a short command on every
// host and every spare host to find those that answer. Spares replace hosts that do not answer. If there are not enough
// spares, the job continues on fewer ranks, with fewer stages or data-parallel groups (run_layout.h).

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launch/hosts/host_launcher.h"
#include "launch/hosts/hosts.h"

namespace chimera {

/// Assignment of hosts to the *places* of a job. Each host in --hosts defines a place: a range of ranks that this host,
/// or a spare instead of it, runs.
class HostAssignment {
 public:
  /// `spares` are in order of preference; HostRanks::count is the maximum number of ranks of a spare.
  HostAssignment(std::vector<HostRanks> hosts, std::vector<HostRanks> spares);

  /// Returns the names of all hosts, then of all spares.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Assigns a host to each place: its own host if it answers, else its current spare if that answers, else the first
  /// free spare with enough ranks, else none. `silent` maps each host that does not answer to the reason (empty:
  /// unknown). Returns a message per change: "host b does not answer; c takes its place".
  [[nodiscard]] std::vector<std::string> assign(const std::map<std::string, std::string>& silent);
  /// Returns the number of ranks in all places with a host.
  [[nodiscard]] int ranks() const;
  /// Returns the number of ranks in all places.
  [[nodiscard]] int all_ranks() const;
  /// Returns hosts for a job of `ranks` ranks, 1 .. ranks(). Takes the places with a host in order, and numbers the
  /// ranks from 0. The last host may run fewer ranks than its place has.
  [[nodiscard]] std::vector<HostRanks> with_ranks(int ranks) const;

 private:
  struct Place {
    HostRanks own;
    std::string holder;  // empty if unoccupied
  };
  [[nodiscard]] bool holds_any(const std::string& name) const;
  [[nodiscard]] std::string spare_for(const Place& place, const std::map<std::string, std::string>& silent) const;

  std::vector<Place> places_;
  std::vector<HostRanks> spares_;
};

/// How a restarted job continues.
struct HostResume {
  std::int64_t step = 0;               ///< Step of the newest checkpoint; 0: none
  std::vector<std::string> arguments;  ///< Added to the arguments of every rank
  std::string description;             ///< Part of a message, such as "goes on from step 30"
};

/// A job on several hosts; `chimera launch` fills it.
struct HostJob {
  std::vector<HostRanks> hosts;
  std::vector<HostRanks> spares = {};  ///< `count` is the maximum number of ranks
  std::vector<std::string> arguments;  ///< argv[1..]; of `train` if restarts are allowed
  /// Returns the commands that start these hosts with these arguments of every rank. Called once per attempt; each
  /// attempt has its own rendezvous secret.
  std::function<std::vector<HostCommand>(const std::vector<HostRanks>&, const std::vector<std::string>&)> start;
  /// Returns the command line that runs chimera with these arguments on a host, in the job's folder. Only needed if
  /// restarts are allowed.
  std::function<std::vector<std::string>(const std::string& host, const std::vector<std::string>&)> remote_command = {};
  int most_restarts = 0;  ///< Maximum number of restarts
  /// Returns where a restarted job continues. Called before each restart.
  std::function<HostResume()> resume = {};
};

/// Runs the job with run_on_hosts(), and returns its exit code. Restarts a failed job if allowed, except after
/// ExitCode::Usage:
/// - Runs `chimera --version` on hosts and spares, and waits up to 10 s for the answers; does not wait for spares if
///   all hosts answer.
/// - If places stay without a host, continues with the first of smaller_layouts() (run_layout.h) that a dry run on the
///   first host accepts. If it accepts none, returns ExitCode::No.
/// - A signal between two attempts ends the job: with 130 after SIGINT, else with kSavedExit.
///
/// A job with restarts that fails after it was asked to save returns kSavedExit.
///
/// Call it from the main thread, while no other thread receives signals. Throws Error if the system refuses a process;
/// started processes are killed.
[[nodiscard]] int launch_on_hosts(const HostJob& job);

}  // namespace chimera
