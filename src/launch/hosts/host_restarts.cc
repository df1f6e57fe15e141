#include "launch/hosts/host_restarts.h"

#include <signal.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <chrono>
#include <utility>

#include "core/console.h"
#include "core/error.h"
#include "launch/hosts/run_layout.h"
#include "launch/local/place.h"
#include "launch/local/process.h"
#include "launch/local/restarts.h"
#include "launch/local/run_commands.h"

namespace chimera {
namespace {

using Silent = std::map<std::string, std::string>;

/// "host b does not answer (ssh: connect to host b port 22: No route to host)".
std::string describe_silent_host(const std::string& host, const Silent& silent) {
  const std::string& why = silent.at(host);
  return fmt::format("host {} does not answer{}", host, why.empty() ? "" : fmt::format(" ({})", why));
}

using Words = std::vector<std::string>;

constexpr std::chrono::seconds kAnswerWithin{10};   // a busy host takes a second or two
constexpr std::chrono::seconds kDryRunWithin{120};  // includes loading LibTorch

constexpr RestartWords kHostWords{.first = "before its first checkpoint", .later = "after the checkpoint of step"};

void print_message(const std::string& line) { messages().write(fmt::format("chimera: {}\n", line)); }

Words concatenate(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

struct HostStart {
  std::vector<HostRanks> hosts;
  Words layout = {};  // empty: as in the job's arguments
};

class HostRestarts {
 public:
  HostRestarts(const HostJob& job, SignalInbox& signals)
      : job_(job), signals_(signals), places_(job.hosts, job.spares), restarts_(job.most_restarts, kHostWords) {}

  int run() {
    HostStart start{.hosts = job_.hosts};
    Words arguments = job_.arguments;
    while (true) {
      const HostsEnding ending = run_on_hosts(commands(start.hosts, arguments), signals_);
      // A usage error repeats itself, and a job that was asked to save has nothing to gain from another attempt.
      const bool may_go_on = ending.failed && ending.exit_code != static_cast<int>(ExitCode::Usage);
      if (!may_go_on || job_.most_restarts == 0) return ending.exit_code;
      if (ending.asked_to_save) return static_cast<int>(kSavedExit);
      const Restarts::Advice advice = restarts_.after_failure(job_.resume().step);
      if (!advice.why_not.empty()) print_message(advice.why_not);
      if (!advice.again) return ending.exit_code;
      if (const auto code = wait_between_starts(signals_, advice.pause)) return *code;
      // Asks the hosts only after the pause: a host that reboots needs the time.
      const auto next = next_start();
      if (const auto code = wait_between_starts(signals_, std::chrono::seconds(0))) return *code;
      if (!next) return ending.exit_code;
      start = *next;
      const HostResume resume = job_.resume();
      arguments = concatenate(concatenate(job_.arguments, start.layout), resume.arguments);
      print_message(fmt::format("restart {} of {}: {}", restarts_.done(), job_.most_restarts, resume.description));
    }
  }

 private:
  [[nodiscard]] std::vector<HostCommand> commands(const std::vector<HostRanks>& hosts, const Words& arguments) const {
    std::vector<HostCommand> commands = job_.start(hosts, arguments);
    for (HostCommand& command : commands) {
      command.order.variables.push_back(fmt::format("{}={}", kStartVariable, restarts_.done()));
    }
    return commands;
  }

  /// Returns nullopt after a signal, or, with a message, if no attempt is possible.
  std::optional<HostStart> next_start() {
    const auto silent = silent_hosts();
    if (!silent) return std::nullopt;
    for (const std::string& change : places_.assign(*silent)) print_message(change);
    const int ranks = places_.ranks();
    if (ranks == places_.all_ranks()) return HostStart{.hosts = places_.with_ranks(ranks)};
    if (ranks == 0) {
      print_message("not restarted: no host is left");
      return std::nullopt;
    }
    return smaller_start(ranks);
  }

  /// Returns the error messages of these hosts; nullopt after a signal.
  std::optional<std::map<std::string, std::string>> silent_hosts() {
    const Words names = places_.names();
    std::vector<Words> commands;
    for (const std::string& name : names) commands.push_back(job_.remote_command(name, {"--version"}));
    // spares are awaited only if a host is lost
    const auto replies = run_commands(commands, kAnswerWithin, signals_, job_.hosts.size());
    std::map<std::string, std::string> silent;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!replies[i]) silent[names[i]] = "";
      if (replies[i] && replies[i]->exit_code != 0) silent[names[i]] = last_line(replies[i]->errors);
    }
    return signals_.has_signal() ? std::nullopt : std::optional(silent);
  }

  std::optional<HostStart> smaller_start(int ranks) {
    const std::string left = fmt::format("{} of {} ranks are left", ranks, places_.all_ranks());
    const auto found = find_smaller_layout([this](const Words& flags) { return dry_run(flags); }, ranks);
    if (!found) return std::nullopt;
    if (!found->layout) {
      print_message(fmt::format("not restarted: {}, and no layout of these ranks has the same mini-batch{}", left,
                                found->message.empty() ? "" : fmt::format(" ({})", found->message)));
      return std::nullopt;
    }
    const Words flags = layout_flags(*found->layout);
    print_message(fmt::format("{}: continues with {}", left, fmt::join(flags, " ")));
    return HostStart{.hosts = places_.with_ranks(static_cast<int>(found->layout->ranks())), .layout = flags};
  }

  /// Runs on the first host, which has the model and LibTorch; nullopt after a signal.
  std::optional<LayoutReply> dry_run(const Words& flags) {
    const Words arguments = concatenate(concatenate(job_.arguments, flags), {"--dry-run", "--format", "json"});
    const auto command = job_.remote_command(places_.with_ranks(1).front().host, arguments);
    const auto reply = run_commands({command}, kDryRunWithin, signals_).front();
    if (signals_.has_signal()) return std::nullopt;
    if (!reply) return LayoutReply{.layout = {}, .message = "a dry run has not ended"};
    return LayoutReply{.layout = parse_layout(reply->output), .message = last_line(reply->errors)};
  }

  const HostJob& job_;
  SignalInbox& signals_;
  HostAssignment places_;
  Restarts restarts_;
};

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
      changes.push_back(describe_silent_host(before[i], silent) + next);
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

int launch_on_hosts(const HostJob& job) {
  ::signal(SIGPIPE, SIG_IGN);  // a write to a lost host must not end this process
  SignalInbox signals;         // before the first process, so that no signal is missed
  const int code = HostRestarts(job, signals).run();
  messages().drain(kDrainAfterFailure);
  return code;
}

}  // namespace chimera
