#include "launch/hosts/host_restarts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <signal.h>

#include <chrono>
#include <map>
#include <optional>

#include "core/console.h"
#include "core/error.h"
#include "launch/hosts/host_places.h"
#include "launch/hosts/smaller_layout.h"
#include "launch/local/ask.h"
#include "launch/local/environment.h"
#include "launch/local/restarts.h"
#include "launch/local/signal_inbox.h"

namespace chimera {
namespace {

using Words = std::vector<std::string>;

constexpr std::chrono::seconds kAnswerWithin{10};   // a host that is there; a busy one takes a second or two
constexpr std::chrono::seconds kDryRunWithin{120};  // it loads LibTorch first

constexpr RestartWords kHostWords{.first = "before its first checkpoint", .later = "behind the checkpoint of step"};

void say(const std::string& line) { messages().write(fmt::format("chimera: {}\n", line)); }

Words together(Words words, const Words& more) {
  words.insert(words.end(), more.begin(), more.end());
  return words;
}

/// What a start of the job is made of.
struct HostStart {
  std::vector<HostRanks> hosts;
  Words layout = {};  // flags; none: as the job's arguments say
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
      const bool may_go_on = ending.failed && ending.exit_code != static_cast<int>(ExitCode::Usage);
      if (!may_go_on || job_.most_restarts == 0) return ending.exit_code;
      if (ending.asked_to_save) return static_cast<int>(kSavedExit);
      const Restarts::Advice advice = restarts_.after_failure(job_.resume().step);
      if (!advice.why_not.empty()) say(advice.why_not);
      if (!advice.again) return ending.exit_code;
      if (const auto code = wait_between_starts(signals_, advice.pause)) return *code;
      const auto next = next_start();
      if (const auto code = wait_between_starts(signals_, std::chrono::seconds(0))) return *code;
      if (!next) return ending.exit_code;
      start = *next;
      const HostResume resume = job_.resume();
      arguments = together(together(job_.arguments, start.layout), resume.arguments);
      say(fmt::format("restart {} of {}: {}", restarts_.done(), job_.most_restarts, resume.description));
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

  /// Where the job can go on now; none, which it has said, where it cannot, or where a signal has come.
  std::optional<HostStart> next_start() {
    const auto silent = silent_hosts();
    if (!silent) return std::nullopt;
    for (const std::string& change : places_.give_out(*silent)) say(change);
    const int ranks = places_.ranks();
    if (ranks == places_.all_ranks()) return HostStart{.hosts = places_.with_ranks(ranks)};
    if (ranks == 0) {
      say("not restarted: no host is left");
      return std::nullopt;
    }
    return smaller_start(ranks);
  }

  /// The names of those that do not answer, and what was said in their place; none where a signal has come.
  std::optional<std::map<std::string, std::string>> silent_hosts() {
    const Words names = places_.names();
    std::vector<Words> commands;
    for (const std::string& name : names) commands.push_back(job_.program_on(name, {"--version"}));
    const auto replies = ask(commands, kAnswerWithin, signals_, job_.hosts.size());  // spares only where one is lost
    std::map<std::string, std::string> silent;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (!replies[i]) silent[names[i]] = "";
      if (replies[i] && replies[i]->exit_code != 0) silent[names[i]] = last_line(replies[i]->errors);
    }
    return signals_.waiting() ? std::nullopt : std::optional(silent);
  }

  std::optional<HostStart> smaller_start(int ranks) {
    const std::string left = fmt::format("{} of {} ranks are left", ranks, places_.all_ranks());
    const auto first = dry_run({});
    const auto now = first ? parse_layout(first->output) : std::nullopt;
    std::string why = first ? last_line(first->errors) : "a dry run has not ended";
    for (const RunLayout& layout : now ? smaller_layouts(*now, ranks) : std::vector<RunLayout>()) {
      const Words flags = layout_flags(layout);
      const auto reply = dry_run(flags);
      if (signals_.waiting()) return std::nullopt;
      if (reply && parse_layout(reply->output) == layout) {
        say(fmt::format("{}: goes on with {}", left, fmt::join(flags, " ")));
        return HostStart{.hosts = places_.with_ranks(static_cast<int>(layout.ranks())), .layout = flags};
      }
      if (reply && !reply->errors.empty()) why = last_line(reply->errors);
    }
    if (signals_.waiting()) return std::nullopt;
    say(fmt::format("not restarted: {}, and no layout of so few has the same mini-batch{}", left,
                    why.empty() ? "" : fmt::format(" ({})", why)));
    return std::nullopt;
  }

  /// What the program on the first host says about the run with these flags; none where it does not.
  std::optional<CommandReply> dry_run(const Words& flags) {
    const Words arguments = together(together(job_.arguments, flags), {"--dry-run", "--format", "json"});
    return ask({job_.program_on(places_.with_ranks(1).front().host, arguments)}, kDryRunWithin, signals_).front();
  }

  const HostJob& job_;
  SignalInbox& signals_;
  HostPlaces places_;
  Restarts restarts_;
};

}  // namespace

int launch_on_hosts(const HostJob& job) {
  ::signal(SIGPIPE, SIG_IGN);  // a host that is gone
  SignalInbox signals;         // before the first process, so that no signal finds processes and no reader
  const int code = HostRestarts(job, signals).run();
  messages().drain(kPromptEnd);
  return code;
}

}  // namespace chimera
