#pragma once
// Who has the place of each host of a job that is started again: pure decisions on who answers.

#include <map>
#include <string>
#include <vector>

#include "launch/hosts/hosts.h"

namespace chimera {

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

}  // namespace chimera
