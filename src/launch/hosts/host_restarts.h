#pragma once

// Chooses the hosts of a job on several hosts anew when launch() (launch/local/launcher.h) restarts it. Before a new
// attempt, runs a short command on every host and every spare host to find those that answer. Spares replace hosts that
// do not answer. If there are not enough spares, the job continues on fewer ranks, with fewer stages or data-parallel
// groups (run_layout.h).

#include <map>

#include "launch/hosts/hosts.h"
#include "launch/local/process.h"

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

/// Chooses the hosts of each attempt of a job.
class HostAttempts {
 public:
  /// `arguments` is the command line of every rank in the first attempt.
  HostAttempts(RemoteJob job, std::vector<std::string> arguments);

  /// Returns the job of the next attempt, whose ranks get `arguments`. Each attempt has a new secret, so that a rank of
  /// an earlier attempt that is still alive cannot join, and a new port unless RemoteJob::port gives one. From the
  /// second attempt on,
  /// - runs `chimera --version` on hosts and spares, and waits up to 10 s for the answers; does not wait for spares if
  ///   all hosts answer;
  /// - if places stay without a host, continues with the first of smaller_layouts() (run_layout.h) that a dry run on
  ///   the first host accepts.
  /// Returns nullopt after a signal, or, with a message, if no attempt is possible.
  [[nodiscard]] std::optional<RemoteJob> next(std::vector<std::string> arguments, const SignalInbox& signals);

 private:
  [[nodiscard]] std::optional<std::map<std::string, std::string>> silent_hosts(const SignalInbox& signals) const;
  /// Returns the flags of the layout; empty: as before.
  [[nodiscard]] std::optional<std::vector<std::string>> assign_hosts(const SignalInbox& signals);
  [[nodiscard]] std::optional<std::vector<std::string>> shrink(const SignalInbox& signals);
  void take(const std::vector<HostRanks>& hosts);
  [[nodiscard]] const RemoteHost& named(const std::string& name) const;

  const RemoteJob first_;
  const std::vector<std::string> arguments_;
  RemoteJob job_;
  HostAssignment places_;
  bool has_begun_ = false;
};

}  // namespace chimera
