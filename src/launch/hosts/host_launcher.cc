#include "launch/hosts/host_launcher.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>
#include <algorithm>
#include <array>
#include <chrono>
#include <optional>

#include "core/console.h"
#include "core/file_descriptor.h"
#include "core/files.h"
#include "core/invariant.h"
#include "launch/local/failure_report.h"

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kFarGrace{1000};  // wait for the culprit after a victim
constexpr std::chrono::milliseconds kEndGrace{5000};  // from closing standard input to SIGKILL

struct Host {
  HostRanks ranks;
  FileDescriptor input;          ///< Pipe to standard input; empty once asked to end
  std::optional<Ending> ending;  ///< Empty while it runs

  [[nodiscard]] int exit_code() const { return exit_code_of(*ending); }
  [[nodiscard]] bool failed() const {
    return ending && exit_code() != 0 && exit_code() != static_cast<int>(kSavedExit);
  }
  [[nodiscard]] bool is_victim() const { return failed() && exit_code() == static_cast<int>(ExitCode::PeerLost); }
};

Host start(const HostCommand& command, ChildProcesses& processes) {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC), "create a pipe");
  const FileDescriptor theirs(ends[0]);
  Host host{.ranks = command.order.ranks, .input = FileDescriptor(ends[1]), .ending = {}};
  processes.add(ChildProcess({.executable = command.words.front(),
                              .arguments = {command.words.begin() + 1, command.words.end()},
                              .input = theirs.get()}));
  static_cast<void>(write_all(host.input.get(), to_line(command.order) + "\n"));  // an error ends the process, too
  return host;
}

/// Starts the hosts' commands and watches them until all have ended. The launcher sees only exit codes: messages of
/// ranks go to stderr on their own way, through ssh.
class HostWatch {
 public:
  HostWatch(const std::vector<HostCommand>& commands, SignalInbox& signals) : signals_(signals) {
    for (const HostCommand& command : commands) hosts_.push_back(start(command, processes_));
  }

  HostsEnding run() {
    while (processes_.has_running()) {
      const ChildEvents events = processes_.wait(signals_, -1, deadline_);
      for (const auto& [index, ending] : events.exits) note_end(hosts_[index], ending);
      while (const auto number = signals_.next()) take_signal(*number);
      decide();
    }
    return {.exit_code = exit_code(), .failed = first_ != nullptr && signal_ == 0, .asked_to_save = passed_on_ != 0};
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Keeps the first failed host; prefers a host with its own failure.
  void note_end(Host& host, const Ending& ending) {
    require_invariant(!host.ending, "host " + host.ranks.host + " has ended twice");
    host.ending = ending;
    if (host.failed() && !is_ending_ && (first_ == nullptr || first_->is_victim())) first_ = &host;
  }

  /// Only the host of rank 0 gets the signal: rank 0 tells the other ranks in the next sum of numbers, so all of them
  /// save after the same step.
  void take_signal(int number) {
    const bool is_second = asked_ && Clock::now() - *asked_ >= kSameSignal;
    if (number == SIGINT || is_second) {
      signal_ = number;
    } else if (!asked_) {
      asked_ = Clock::now();
      passed_on_ = number;
      static_cast<void>(write_all(hosts_.front().input.get(), std::to_string(number) + "\n"));
    }
  }

  /// A victim's host may report first, since its rank notices the loss before the launcher of the lost host ends. So
  /// the launcher waits a moment for a host with a failure of its own.
  void decide() {
    const bool is_over_time = deadline_ && Clock::now() >= *deadline_;
    if (is_ending_) {
      if (is_over_time) kill_rest();
    } else if (signal_ != 0) {
      end_all();
    } else if (first_ != nullptr && (!first_->is_victim() || is_over_time)) {
      if (hosts_.size() > 1 && passed_on_ == 0 && !first_->is_victim()) {
        messages().write(fmt::format("chimera: {} failed; all hosts end\n", to_text(first_->ranks)));
      }
      end_all();
    } else if (first_ != nullptr && !deadline_) {
      deadline_ = Clock::now() + kFarGrace;
    }
  }

  /// Closes the standard inputs. ssh passes their end on, and the host's launcher then kills its ranks; a signal would
  /// end only ssh and leave the ranks running.
  void end_all() {
    is_ending_ = true;
    for (Host& host : hosts_) host.input = FileDescriptor();
    deadline_ = Clock::now() + kEndGrace;
  }

  void kill_rest() {
    processes_.kill_running();
    deadline_.reset();
  }

  [[nodiscard]] int exit_code() const {
    if (signal_ != 0) return exit_code_of_signal(signal_);
    if (first_ != nullptr && passed_on_ != 0) return exit_code_of_signal(passed_on_);  // the run had nothing to save
    if (first_ != nullptr) {
      const bool usage = first_->exit_code() == static_cast<int>(ExitCode::Usage);
      return static_cast<int>(usage ? ExitCode::Usage : ExitCode::No);
    }
    const bool saved = std::ranges::any_of(hosts_, [](const Host& host) { return host.exit_code() != 0; });
    return static_cast<int>(saved ? kSavedExit : ExitCode::Success);
  }

  SignalInbox& signals_;
  std::vector<Host> hosts_;
  ChildProcesses processes_;  ///< [host]
  const Host* first_ = nullptr;
  std::optional<Clock::time_point> asked_;     ///< Time of the request to save
  int passed_on_ = 0;                          ///< Signal forwarded to rank 0; 0: none
  int signal_ = 0;                             ///< Signal that ends the job; 0: none
  std::optional<Clock::time_point> deadline_;  ///< End of the wait for a culprit, or for hosts to end
  bool is_ending_ = false;
};

}  // namespace

HostsEnding run_on_hosts(const std::vector<HostCommand>& hosts, SignalInbox& signals) {
  return HostWatch(hosts, signals).run();
}

}  // namespace chimera
