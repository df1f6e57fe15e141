#pragma once

// Restarts a job on several hosts after a failure. Before each attempt it runs a command on every host and spare to
// find those that answer. Spares replace silent hosts; without enough of them the job continues with a smaller layout
// (run_layout.h).

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "launch/hosts/host_launcher.h"
#include "launch/hosts/hosts.h"

namespace chimera {

/// Assignment of hosts and spares to the places of a job, in rank order.
class HostAssignment {
 public:
  /// `spares` are in order of preference, with maximum numbers of ranks.
  HostAssignment(std::vector<HostRanks> hosts, std::vector<HostRanks> spares);

  [[nodiscard]] std::vector<std::string> names() const;
  /// `silent` maps hosts that do not answer to the reason, if known. A place goes to its own host if that answers, else
  /// to its current spare, else to the first free spare with enough ranks, else it stays empty. Returns a line per
  /// change: "host b does not answer; c takes its place".
  [[nodiscard]] std::vector<std::string> assign(const std::map<std::string, std::string>& silent);
  /// Returns the ranks of all occupied places.
  [[nodiscard]] int ranks() const;
  [[nodiscard]] int all_ranks() const;
  /// Returns occupied places with `ranks` ranks in total, 1 .. ranks(). Only the last may have fewer ranks than its
  /// place.
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

struct HostResume {
  std::int64_t step = 0;               ///< Step of the newest checkpoint; 0: none
  std::vector<std::string> arguments;  ///< Added to the arguments of every rank
  std::string description;             ///< Message "goes on from step 30"
};

struct HostJob {
  std::vector<HostRanks> hosts;
  std::vector<HostRanks> spares = {};  ///< `count` is the maximum number of ranks
  std::vector<std::string> arguments;  ///< argv[1..]; of `train` if restarts are allowed
  /// Returns the hosts' commands. Each attempt has its own secret.
  std::function<std::vector<HostCommand>(const std::vector<HostRanks>&, const std::vector<std::string>&)> start;
  /// Returns a command line of the program in the job's folder.
  std::function<std::vector<std::string>(const std::string& host, const std::vector<std::string>&)> program_on = {};
  int most_restarts = 0;
  std::function<HostResume()> resume = {};
};

/// Runs the job as run_on_hosts() does. Restarts a failed job if allowed, except after ExitCode::Usage. Hosts and
/// spares first have 10 s to run the program; spares are not awaited if all hosts answer. If ranks are missing (see
/// HostAssignment), uses the first of smaller_layouts() that a dry run on the first host accepts; without such a layout
/// returns ExitCode::No. A signal between attempts ends the job as in wait_between_starts(). A job with restarts that
/// fails after a request to save returns kSavedExit.
///
/// Call it from the main thread, while no other thread receives signals. Throws Error if the system refuses a process;
/// started processes are killed.
[[nodiscard]] int launch_on_hosts(const HostJob& job);

}  // namespace chimera
