#pragma once
// A job on several hosts that goes on after a failure: on the same hosts, with spares in the place of lost ones, or on
// fewer ranks.

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "launch/hosts/host_launcher.h"
#include "launch/hosts/hosts.h"

namespace chimera {

/// Where a job that has failed goes on.
struct HostResume {
  std::int64_t step = 0;               ///< of its newest checkpoint; 0: none is seen
  std::vector<std::string> arguments;  ///< added to those of every rank
  std::string description;             ///< for people: "goes on from step 30"
};

struct HostJob {
  std::vector<HostRanks> hosts;
  std::vector<HostRanks> spares = {};  ///< the count of each is the most ranks that it can have
  std::vector<std::string> arguments;  ///< argv[1..] of every rank; of `train` where the job may be started again
  /// What starts ranks with these arguments on these hosts. Called for each start, as each has a secret of its own.
  std::function<std::vector<HostCommand>(const std::vector<HostRanks>&, const std::vector<std::string>&)> start;
  /// The words that run the program with these arguments, in the job's folder on a host.
  std::function<std::vector<std::string>(const std::string& host, const std::vector<std::string>&)> program_on = {};
  int most_restarts = 0;  ///< how often a job that has failed is started again, see Restarts
  std::function<HostResume()> resume = {};
};

/// Runs the job as run_on_hosts() does, and returns its exit code. Where the plan allows it, a job that has failed,
/// other than with ExitCode::Usage, is started again. All hosts and spares are asked before whether they run the
/// program, and have 10 s to answer; nobody waits for spares where all hosts do. HostPlaces says who is on. Where ranks
/// are missing, the job goes on with the first of smaller_layouts() that the program accepts in a dry run on the first
/// host; where none is, it ends with ExitCode::No. Lines on standard error say what is done. A signal that comes
/// between two starts ends the job as wait_between_starts() says; one that asks it to save as it fails, too.
///
/// Call it from the main thread, with no other thread running that takes signals. Throws Error where the system refuses
/// a process; those already started are ended then.
[[nodiscard]] int launch_on_hosts(const HostJob& job);

}  // namespace chimera
