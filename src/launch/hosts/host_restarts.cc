#include "launch/hosts/host_restarts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <random>

#include "core/console.h"
#include "core/mapped.h"
#include "launch/hosts/run_layout.h"
#include "launch/local/place.h"
#include "launch/local/process.h"
#include "launch/local/run_commands.h"
#include "rendezvous/channel.h"

// HostAssignment decides on names alone, so that tests need no hosts. HostAttempts asks the hosts, and tries layouts
// with fewer ranks if places stay empty: first, which hosts answer; then, a dry run for each layout on the first of
// them.

namespace chimera {
namespace {

using Silent = std::map<std::string, std::string>;

using Words = std::vector<std::string>;

constexpr std::chrono::seconds kAnswerWithin{10};   // a busy host takes a second or two
constexpr std::chrono::seconds kDryRunWithin{120};  // includes loading LibTorch

Words concatenate(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// The port is below the ephemeral range.
int random_port() {
  // A random port avoids the ports of other jobs on the same host; a free one cannot be asked for, because the ranks
  // that listen are on another host.
  return 20000 + static_cast<int>(std::random_device()() % 10000);
}

}  // namespace

HostAssignment::HostAssignment(std::vector<HostRanks> hosts, std::vector<HostRanks> spares)
    : spares_(std::move(spares)) {
  for (HostRanks& host : hosts) {
    std::string name = host.host;
    places_.push_back({.own = std::move(host), .holder = std::move(name)});
  }
}

std::vector<std::string> HostAssignment::names() const {
  std::vector<std::string> names;
  for (const Place& place : places_) names.push_back(place.own.host);
  for (const HostRanks& spare : spares_) names.push_back(spare.host);
  return names;
}

bool HostAssignment::holds_any(const std::string& name) const {
  return std::ranges::any_of(places_, [&](const Place& place) { return place.holder == name; });
}

std::string HostAssignment::spare_for(const Place& place, const Silent& silent) const {
  const auto fits = [&](const HostRanks& spare) {
    return spare.count >= place.own.count && !silent.contains(spare.host) && !holds_any(spare.host);
  };
  const auto spare = std::ranges::find_if(spares_, fits);
  return spare == spares_.end() ? "" : spare->host;
}

// Two passes: hosts that answer again take their places back first, so that their spares are free for other places.
std::vector<std::string> HostAssignment::assign(const Silent& silent) {
  std::vector<std::string> before;
  for (Place& place : places_) {
    before.push_back(place.holder);
    if (!silent.contains(place.own.host))
      place.holder = place.own.host;
    else if (silent.contains(place.holder))
      place.holder.clear();
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
      const std::string& why = silent.at(before[i]);  // as "ssh: connect to host b port 22: No route to host"
      changes.push_back(fmt::format("host {} does not answer{}{}", before[i],
                                    why.empty() ? "" : fmt::format(" ({})", why),
                                    place.holder.empty() ? "" : fmt::format("; {} takes its place", place.holder)));
    }
  }
  return changes;
}

int HostAssignment::ranks() const {
  int ranks = 0;
  for (const Place& place : places_) ranks += place.holder.empty() ? 0 : place.own.count;
  return ranks;
}

int HostAssignment::all_ranks() const {
  int ranks = 0;
  for (const Place& place : places_) ranks += place.own.count;
  return ranks;
}

// Ranks are numbered anew without gaps, because a job's ranks are 0 .. n-1 whichever hosts hold them.
std::vector<HostRanks> HostAssignment::with_ranks(int ranks) const {
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

HostAttempts::HostAttempts(RemoteJob job, std::vector<std::string> arguments)
    : first_(std::move(job)),
      arguments_(std::move(arguments)),
      job_(first_),
      places_(mapped(first_.hosts, &RemoteHost::ranks), mapped(first_.spares, &RemoteHost::ranks)) {}

std::optional<RemoteJob> HostAttempts::next(std::vector<std::string> arguments, const SignalInbox& signals) {
  const auto layout = std::exchange(has_begun_, true) ? assign_hosts(signals) : Words();
  if (!layout) return std::nullopt;
  RemoteJob attempt = job_;
  attempt.arguments = concatenate(std::move(arguments), *layout);
  attempt.variables[kSecretVariable] = make_secret();
  if (attempt.port == 0) attempt.port = random_port();
  return attempt;
}

std::optional<Words> HostAttempts::assign_hosts(const SignalInbox& signals) {
  const auto silent = silent_hosts(signals);
  if (!silent) return std::nullopt;
  for (const std::string& change : places_.assign(*silent)) print_message(change);
  const int ranks = places_.ranks();
  if (ranks == 0) {
    print_message("not restarted: no host is left");
    return std::nullopt;
  }
  if (ranks < places_.all_ranks()) return shrink(signals);
  take(places_.with_ranks(ranks));
  return Words();
}

/// Returns the error messages of the hosts that do not answer; nullopt after a signal.
std::optional<Silent> HostAttempts::silent_hosts(const SignalInbox& signals) const {
  const Words names = places_.names();
  const auto commands = mapped(names, [&](const auto& name) { return command_on(named(name), {"--version"}); });
  // spares are awaited only if a host is lost
  const auto replies = run_commands(commands, kAnswerWithin, signals, first_.hosts.size());
  Silent silent;
  for (std::size_t i = 0; i < names.size(); ++i) {
    // A spare that was not awaited counts as silent, which is harmless: no place needs it.
    if (!replies[i]) silent[names[i]] = "";
    if (replies[i] && replies[i]->exit_code != 0) silent[names[i]] = last_line(replies[i]->errors);
  }
  return signals.has_signal() ? std::nullopt : std::optional(silent);
}

std::optional<Words> HostAttempts::shrink(const SignalInbox& signals) {
  const int ranks = places_.ranks();
  const std::string left = fmt::format("{} of {} ranks are left", ranks, places_.all_ranks());
  const RemoteHost& first = named(places_.with_ranks(1).front().host);
  const auto dry_run = [&](const Words& flags) -> std::optional<LayoutReply> {
    const Words words = concatenate(concatenate(arguments_, flags), {"--dry-run", "--format", "json"});
    const auto reply = run_commands({command_on(first, words)}, kDryRunWithin, signals).front();
    if (signals.has_signal()) return std::nullopt;
    if (!reply) return LayoutReply{.layout = {}, .message = "a dry run has not ended"};
    return LayoutReply{.layout = parse_layout(reply->output), .message = last_line(reply->errors)};
  };
  const auto found = find_smaller_layout(dry_run, ranks);
  if (!found) return std::nullopt;
  if (!found->layout) {
    print_message("not restarted: {}, and no layout of these ranks has the same mini-batch{}", left,
                  found->message.empty() ? "" : fmt::format(" ({})", found->message));
    return std::nullopt;
  }
  const Words flags = layout_flags(*found->layout);
  print_message("{}: continues with {}", left, fmt::join(flags, " "));
  take(places_.with_ranks(static_cast<int>(found->layout->ranks())));
  return flags;
}

void HostAttempts::take(const std::vector<HostRanks>& hosts) {
  job_.hosts.clear();
  for (const HostRanks& ranks : hosts) {
    job_.hosts.push_back(named(ranks.host));
    job_.hosts.back().ranks = ranks;
  }
}

const RemoteHost& HostAttempts::named(const std::string& name) const {
  const auto is_named = [&](const RemoteHost& host) { return host.ranks.host == name; };
  const auto found = std::ranges::find_if(first_.hosts, is_named);
  return found != first_.hosts.end() ? *found : *std::ranges::find_if(first_.spares, is_named);
}

}  // namespace chimera
