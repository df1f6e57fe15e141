#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "launch/hosts/host_launcher.h"
#include "launch/hosts/hosts.h"

// Layouts of a training run on fewer ranks than it was started with.

// Who has the place of each host of a job that is started again: pure decisions on who answers.

// A job on several hosts that goes on after a failure: on the same hosts, with spares in the place of lost ones, or on
// fewer ranks.

namespace chimera {

/// How a training run is laid out: D workers in each of W groups, and N micro-batches a step in each group.
struct RunLayout {
  std::int64_t workers = 1;        ///< D, what --stages gives
  std::int64_t data_parallel = 1;  ///< W
  std::int64_t micro_batches = 1;  ///< N
  std::int64_t mini_batch = 1;     ///< sequences in a step of all groups

  [[nodiscard]] std::int64_t ranks() const { return workers * data_parallel; }
  friend bool operator==(const RunLayout&, const RunLayout&) = default;
};

/// That of `chimera train ... --dry-run --format json`; none where the text is not what that prints.
[[nodiscard]] std::optional<RunLayout> parse_layout(const std::string& dry_run);

/// The layouts of at most `ranks` ranks with the same micro-batches in a step, best first: with fewer groups as they
/// are, from the most on; then with fewer workers in a group, from the most on, in as many groups as possible. Which of
/// them the schedule and the model allow, they do not know.
[[nodiscard]] std::vector<RunLayout> smaller_layouts(const RunLayout& now, std::int64_t ranks);

/// The flags of `chimera train` that ask for it.
[[nodiscard]] std::vector<std::string> layout_flags(const RunLayout& layout);

/// The hosts of a job, in the order of ranks, and the spares that stand in for those that are lost.
class HostPlaces {
 public:
  /// `spares`: in the order in which they are taken; the count of each is the most ranks that it can have.
  HostPlaces(std::vector<HostRanks> hosts, std::vector<HostRanks> spares);

  /// The names of all hosts and spares.
  [[nodiscard]] std::vector<std::string> names() const;
  /// Gives out the places anew. `silent`: the names of those that do not answer, and why, as far as known. A host that
  /// answers has its own place. That of one that does not keeps the spare it has, or gets the first one that answers,
  /// has no other place and can have as many ranks; else it is empty. Returns what has changed, a line each without its
  /// end: "host b does not answer; c takes its place".
  [[nodiscard]] std::vector<std::string> give_out(const std::map<std::string, std::string>& silent);
  /// Ranks of the places that somebody has.
  [[nodiscard]] int ranks() const;
  /// Ranks of all places.
  [[nodiscard]] int all_ranks() const;
  /// Who has the places, with `ranks` ranks between them, 1 .. ranks(): the first ones have all of theirs, the last one
  /// may have fewer.
  [[nodiscard]] std::vector<HostRanks> with_ranks(int ranks) const;

 private:
  struct Place {
    HostRanks own;
    std::string holder;  // empty: nobody
  };
  [[nodiscard]] bool holds_any(const std::string& name) const;
  [[nodiscard]] std::string spare_for(const Place& place, const std::map<std::string, std::string>& silent) const;

  std::vector<Place> places_;
  std::vector<HostRanks> spares_;
};

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
