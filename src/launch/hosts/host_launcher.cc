#include "launch/hosts/host_launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "core/console.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "launch/local/process.h"
#include "launch/local/verdict.h"

namespace chimera {
namespace {

constexpr std::chrono::milliseconds kFarGrace{1000};  // for a host that fails by itself, once others have lost it
constexpr std::chrono::milliseconds kEndGrace{5000};  // from the end of standard input to SIGKILL of the connection

/// Writes to a host; one that is gone is found out by its process.
void tell(const FileDescriptor& input, std::string line) {
  line += '\n';
  for (std::string_view rest = line; !rest.empty();) {
    const ssize_t written = ::write(input.get(), rest.data(), rest.size());
    if (written < 0 && errno != EINTR) return;
    if (written > 0) rest.remove_prefix(static_cast<std::size_t>(written));
  }
}

/// One host, from the start of its process to the end.
struct Host {
  HostRanks ranks;
  FileDescriptor input;  ///< of its process; empty once it is asked to end
  std::optional<ChildProcess> process;
  std::optional<Ending> ending;

  [[nodiscard]] bool running() const { return process->running(); }
  [[nodiscard]] int exit_code() const {
    return ending->kind == Ending::Kind::Killed ? exit_code_of_signal(ending->value) : ending->value;
  }
  [[nodiscard]] bool failed() const {
    return ending && exit_code() != 0 && exit_code() != static_cast<int>(kSavedExit);
  }
  [[nodiscard]] bool is_victim() const { return failed() && exit_code() == static_cast<int>(ExitCode::PeerLost); }
};

Host start(const HostCommand& command) {
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC), "create a pipe");
  const FileDescriptor theirs(ends[0]);
  Host host{.ranks = command.order.ranks, .input = FileDescriptor(ends[1]), .process = {}, .ending = {}};
  host.process.emplace(Command{.executable = command.words.front(),
                               .arguments = {command.words.begin() + 1, command.words.end()},
                               .environment = {},
                               .descriptors = {},
                               .input = theirs.get()});
  tell(host.input, to_line(command.order));
  return host;
}

class HostWatch {
 public:
  HostWatch(const std::vector<HostCommand>& commands, SignalInbox& signals) : signals_(signals) {
    for (const HostCommand& command : commands) hosts_.push_back(start(command));
  }

  HostsEnding run() {
    while (std::ranges::any_of(hosts_, &Host::running)) {
      wait_for_news();
      for (Host& host : hosts_) {
        if (host.running()) host.ending = host.process->reap();
        if (host.failed() && !ending_ && !first_) first_ = &host;
        if (host.failed() && !ending_ && first_->is_victim()) first_ = &host;  // one that fails by itself comes first
      }
      while (const auto number = signals_.next()) take_signal(*number);
      judge();
    }
    return {exit_code(), first_ != nullptr && signal_ == 0, passed_on_ != 0};
  }

 private:
  using Clock = std::chrono::steady_clock;

  void wait_for_news() const {
    std::vector<pollfd> watched = {{signals_.fd(), POLLIN, 0}};
    for (const Host& host : hosts_) watched.push_back({host.process->pidfd(), POLLIN, 0});
    int timeout = -1;
    if (deadline_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*deadline_ - Clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) check_system(-1, "watch the hosts");
  }

  void take_signal(int number) {
    const bool is_second = asked_ && Clock::now() - *asked_ >= kSameSignal;
    if (number == SIGINT || is_second) {
      signal_ = number;
    } else if (!asked_) {
      asked_ = Clock::now();
      passed_on_ = number;
      tell(hosts_.front().input, std::to_string(number));
    }
  }

  void judge() {
    const bool over_time = deadline_ && Clock::now() >= *deadline_;
    if (ending_) {
      if (over_time) kill_rest();
    } else if (signal_ != 0) {
      end_all();
    } else if (first_ != nullptr && (!first_->is_victim() || over_time)) {
      if (hosts_.size() > 1 && passed_on_ == 0 && !first_->is_victim()) {
        messages().write(fmt::format("chimera: {} failed; all hosts end\n", to_text(first_->ranks)));
      }
      end_all();
    } else if (first_ != nullptr && !deadline_) {
      deadline_ = Clock::now() + kFarGrace;
    }
  }

  void end_all() {
    ending_ = true;
    for (Host& host : hosts_) host.input = FileDescriptor();
    deadline_ = Clock::now() + kEndGrace;
  }

  void kill_rest() {
    for (const Host& host : hosts_) {
      if (host.running()) host.process->send(SIGKILL);
    }
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
  const Host* first_ = nullptr;                ///< to fail
  std::optional<Clock::time_point> asked_;     ///< since when rank 0 knows of a signal
  int passed_on_ = 0;                          ///< that signal; 0: none
  int signal_ = 0;                             ///< that ends the job; 0: none
  std::optional<Clock::time_point> deadline_;  ///< of the grace for a culprit; once ending, of the hosts
  bool ending_ = false;
};

}  // namespace

HostsEnding run_on_hosts(const std::vector<HostCommand>& hosts, SignalInbox& signals) {
  return HostWatch(hosts, signals).run();
}

}  // namespace chimera
