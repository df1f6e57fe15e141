#include "launch/hosts/host_places.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace chimera {
namespace {

using Silent = std::map<std::string, std::string>;

/// "host b does not answer (ssh: connect to host b port 22: No route to host)".
std::string silence_of(const std::string& host, const Silent& silent) {
  const std::string& why = silent.at(host);
  return fmt::format("host {} does not answer{}", host, why.empty() ? "" : fmt::format(" ({})", why));
}

}  // namespace

HostPlaces::HostPlaces(std::vector<HostRanks> hosts, std::vector<HostRanks> spares) : spares_(std::move(spares)) {
  for (HostRanks& host : hosts) {
    std::string name = host.host;
    places_.push_back({std::move(host), std::move(name)});
  }
}

std::vector<std::string> HostPlaces::names() const {
  std::vector<std::string> names;
  for (const Place& place : places_) names.push_back(place.own.host);
  for (const HostRanks& spare : spares_) names.push_back(spare.host);
  return names;
}

bool HostPlaces::holds_any(const std::string& name) const {
  return std::ranges::any_of(places_, [&](const Place& place) { return place.holder == name; });
}

std::string HostPlaces::spare_for(const Place& place, const Silent& silent) const {
  const auto fits = [&](const HostRanks& spare) {
    return spare.count >= place.own.count && !silent.contains(spare.host) && !holds_any(spare.host);
  };
  const auto spare = std::ranges::find_if(spares_, fits);
  return spare == spares_.end() ? "" : spare->host;
}

std::vector<std::string> HostPlaces::give_out(const Silent& silent) {
  std::vector<std::string> before;
  for (Place& place : places_) {
    before.push_back(place.holder);
    if (!silent.contains(place.own.host)) {
      place.holder = place.own.host;
    } else if (silent.contains(place.holder)) {
      place.holder.clear();
    }
  }
  std::vector<std::string> changes;
  for (std::size_t i = 0; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.holder.empty()) place.holder = spare_for(place, silent);
    if (place.holder == before[i]) continue;
    const bool is_back = place.holder == place.own.host;
    if (is_back) {
      changes.push_back(fmt::format("host {} answers again", place.own.host));
    } else if (before[i].empty()) {
      changes.push_back(fmt::format("{} takes the place of host {}", place.holder, place.own.host));
    } else {
      const std::string next = place.holder.empty() ? "" : fmt::format("; {} takes its place", place.holder);
      changes.push_back(silence_of(before[i], silent) + next);
    }
  }
  return changes;
}

int HostPlaces::ranks() const {
  int ranks = 0;
  for (const Place& place : places_) ranks += place.holder.empty() ? 0 : place.own.count;
  return ranks;
}

int HostPlaces::all_ranks() const {
  int ranks = 0;
  for (const Place& place : places_) ranks += place.own.count;
  return ranks;
}

std::vector<HostRanks> HostPlaces::with_ranks(int ranks) const {
  std::vector<HostRanks> hosts;
  int first = 0;
  for (const Place& place : places_) {
    const int count = place.holder.empty() ? 0 : std::min(place.own.count, ranks - first);
    if (count == 0) continue;
    hosts.push_back({.host = place.holder, .first = first, .count = count});
    first += count;
  }
  return hosts;
}

}  // namespace chimera
