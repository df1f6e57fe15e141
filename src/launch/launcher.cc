#include "launch/launcher.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>

#include "core/cgroup.h"
#include "core/console.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "core/memory_file.h"
#include "launch/environment.h"
#include "launch/hang.h"
#include "launch/process.h"
#include "launch/progress.h"
#include "launch/report.h"
#include "launch/signal_inbox.h"
#include "launch/verdict.h"

namespace chimera {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr int kMostRanks = 1024;
constexpr milliseconds kTerminationGrace{500};  ///< from SIGTERM to SIGKILL

/// What the launcher shares with its ranks.
struct Channels {
  FileDescriptor store;        ///< the rendezvous store, a file in memory
  FileDescriptor input;        ///< the ranks' common input, likewise; empty where they have none
  FileDescriptor report_read;  ///< never blocks
  FileDescriptor report_write;
  ProgressPage progress;
};

FileDescriptor memory_file(const char* name, std::string_view text) {
  FileDescriptor file = make_memory_file(name, 0);
  while (!text.empty()) {
    const ssize_t written = ::write(file.get(), text.data(), text.size());
    if (written < 0) check_system(-1, "write a file in memory");
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

std::string path_of(const FileDescriptor& file) {
  return file.get() < 0 ? "" : fmt::format("/proc/self/fd/{}", file.get());
}

Channels open_channels(const LaunchPlan& plan) {
  Channels channels{
      .store = {}, .input = {}, .report_read = {}, .report_write = {}, .progress = ProgressPage(plan.ranks)};
  channels.store = memory_file("chimera-store", "");
  if (!plan.input.empty()) channels.input = memory_file("chimera-input", plan.input);
  std::array<int, 2> ends{};
  check_system(::pipe2(ends.data(), O_CLOEXEC), "create a pipe");
  channels.report_read = FileDescriptor(ends[0]);
  channels.report_write = FileDescriptor(ends[1]);
  check_system(::fcntl(ends[0], F_SETFL, O_NONBLOCK), "set up a pipe");
  return channels;
}

Command rank_command(const LaunchPlan& plan, const Channels& channels, int rank) {
  std::vector<int> descriptors = {channels.store.get(), channels.report_write.get(), channels.progress.descriptor()};
  if (channels.input.get() >= 0) descriptors.push_back(channels.input.get());
  return {
      .executable = plan.executable,
      .arguments = plan.arguments,
      .environment = {fmt::format("{}={}", kRankVariable, rank), fmt::format("{}={}", kWorldSizeVariable, plan.ranks),
                      fmt::format("{}={}", kStoreVariable, path_of(channels.store)),
                      fmt::format("{}={}", kInputVariable, path_of(channels.input)),
                      fmt::format("{}={}", kReportVariable, channels.report_write.get()),
                      fmt::format("{}={}", kProgressVariable, channels.progress.descriptor()),
                      fmt::format("{}={}", kLauncherVariable, ::getpid())},
      .descriptors = std::move(descriptors),
      .entry = plan.entry};
}

/// Watches running ranks until all have ended. Each round takes in all news before it judges any: what a rank reported
/// before it died, and a signal sent to the whole process group, count before the deaths that they explain.
class Supervisor {
 public:
  /// `kills`: out_of_memory_kills() before the first rank started.
  Supervisor(std::vector<ChildProcess> ranks, const Channels& channels, SignalInbox& signals, const LaunchPlan& plan,
             std::optional<std::uint64_t> kills)
      : ranks_(std::move(ranks)),
        records_(ranks_.size()),
        reports_(channels.report_read),
        progress_(channels.progress),
        signals_(signals),
        plan_(plan),
        kills_(kills) {
    if (plan.hang.count() > 0) hang_watch_.emplace(plan.hang);
  }

  int run() {
    while (any_running()) {
      wait_for_news();
      reap();
      read_reports();
      read_signals();
      judge();
    }
    return exit_code();
  }

 private:
  [[nodiscard]] bool any_running() const {
    return std::ranges::any_of(ranks_, [](const ChildProcess& rank) { return rank.running(); });
  }

  /// Returns when a rank ended, a report or a signal came, the deadline is over, or it is time to look for a hang.
  void wait_for_news() const {
    std::vector<pollfd> watched = {{signals_.fd(), POLLIN, 0}, {reports_.get(), POLLIN, 0}};
    for (const ChildProcess& rank : ranks_) watched.push_back({rank.pidfd(), POLLIN, 0});  // poll skips ended ones: -1
    std::optional<Clock::duration> most;
    if (deadline_) {
      most = std::max(*deadline_ - Clock::now(), Clock::duration::zero());
    } else if (hang_watch_) {
      most = hang_watch_->interval();
    }
    const int timeout = most ? static_cast<int>(std::chrono::ceil<milliseconds>(*most).count()) : -1;
    if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) check_system(-1, "watch the ranks");
  }

  void reap() {
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].running()) continue;
      RankRecord& record = records_[rank];
      record.ending = ranks_[rank].reap();
      if (record.ending && !ending_) record.out_of_memory = killed(*record.ending) && memory_ran_out();
    }
  }

  static bool killed(const Ending& ending) { return ending.kind == Ending::Kind::Killed && ending.value == SIGKILL; }

  /// Whether the kernel has ended a process for want of memory since the ranks started.
  [[nodiscard]] bool memory_ran_out() const {
    const auto now = out_of_memory_kills(plan_.root);
    return now && kills_ && *now > *kills_;
  }

  /// Takes in the reports, then lists the ranks that are newly known to fail: those with a report first, as they came.
  void read_reports() {
    std::array<char, 4096> buffer;
    for (ssize_t size = 0; (size = ::read(reports_.get(), buffer.data(), buffer.size())) > 0;) {
      unread_.append(buffer.data(), static_cast<std::size_t>(size));
    }
    for (auto end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
      note(parse_report(std::string_view(unread_).substr(0, end)));
      unread_.erase(0, end + 1);
    }
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) note_failure(static_cast<int>(rank));
  }

  void note(const std::optional<FailureReport>& report) {
    if (!report || report->rank < 0 || report->rank >= static_cast<int>(records_.size())) return;
    RankRecord& record = record_of(report->rank);
    if (!record.report) record.report = report;  // a rank's first words name the cause
    note_failure(report->rank);
  }

  void note_failure(int rank) {
    const bool known = std::ranges::find(failures_, rank) != failures_.end();
    if (!known && part_of(record_of(rank)) != Part::None) failures_.push_back(rank);
  }

  void read_signals() {
    while (const auto number = signals_.next()) {
      if (!signal_) signal_ = number;
    }
  }

  void judge() {
    const bool over_time = deadline_ && Clock::now() >= *deadline_;
    if (ending_) {
      if (over_time) kill_rest();
    } else if (signal_) {
      end_job(fmt::format("ended by signal {} ({})", *signal_, ::sigdescr_np(*signal_)));
    } else if (const auto culprit = find_culprit(records_, failures_)) {
      blame(*culprit);
    } else if (!failures_.empty() && (over_time || !any_running())) {
      blame(failures_.front());
    } else if (!failures_.empty() && !deadline_) {
      deadline_ = Clock::now() + kVictimGrace;
    } else if (failures_.empty() && hangs()) {
      end_hang();
    }
  }

  /// Takes a look at the ranks' progress.
  bool hangs() {
    if (!hang_watch_) return false;
    HangWatch::Look look = look_at(progress_, static_cast<int>(ranks_.size()));
    if (plan_.waits_idle) {
      for (const ChildProcess& rank : ranks_) look.work.push_back(rank.processor_time());
    }
    return hang_watch_->look(Clock::now(), look);
  }

  void end_hang() {
    std::vector<StuckRank> stuck;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (!ranks_[rank].running()) continue;
      stuck.push_back({static_cast<int>(rank), ranks_[rank].stopped(), progress_.last(static_cast<int>(rank))});
    }
    if (stuck.empty()) return;  // the last rank ended meanwhile
    hung_ = true;
    end_job(describe_hang(find_stuck(stuck), hang_watch_->pause()));
  }

  void blame(int rank) {
    culprit_ = rank;
    end_job(describe_failure(rank, record_of(rank)));
  }

  /// Says why, and asks all ranks to end, save the one whose own exit code is still to come.
  void end_job(const std::string& reason) {
    messages().write("chimera: " + reason + "\n");
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (ranks_[rank].running() && culprit_ != static_cast<int>(rank)) ranks_[rank].send(SIGTERM);
    }
    ending_ = true;
    deadline_ = Clock::now() + kTerminationGrace;
  }

  void kill_rest() {
    for (const ChildProcess& rank : ranks_) {
      if (rank.running()) rank.send(SIGKILL);
    }
    deadline_.reset();
  }

  [[nodiscard]] int exit_code() {
    if (culprit_) return job_exit_code(record_of(*culprit_));
    if (hung_) return static_cast<int>(ExitCode::No);
    if (!signal_) return static_cast<int>(ExitCode::Success);
    return static_cast<int>(*signal_ == SIGINT ? ExitCode::Interrupted : ExitCode::Terminated);
  }

  RankRecord& record_of(int rank) { return records_[static_cast<std::size_t>(rank)]; }

  std::vector<ChildProcess> ranks_;
  std::vector<RankRecord> records_;
  const FileDescriptor& reports_;
  const ProgressPage& progress_;
  SignalInbox& signals_;
  const LaunchPlan& plan_;
  std::optional<std::uint64_t> kills_;
  std::string unread_;         ///< the part of a report that has come
  std::vector<int> failures_;  ///< ranks, as they were seen to fail
  std::optional<HangWatch> hang_watch_;
  bool hung_ = false;
  std::optional<int> culprit_;
  std::optional<int> signal_;  ///< the first that came
  bool ending_ = false;
  std::optional<Clock::time_point> deadline_;  ///< of the grace for a culprit; once ending, of the ranks
};

}  // namespace

std::string own_executable() { return std::filesystem::read_symlink("/proc/self/exe").string(); }

int launch(const LaunchPlan& plan) {
  if (plan.ranks < 1 || plan.ranks > kMostRanks) {
    throw ConfigError(fmt::format("cannot start {} ranks; expected 1 .. {}", plan.ranks, kMostRanks));
  }
  SignalInbox signals;  // before the first rank, so that no signal finds ranks and no reader
  const Channels channels = open_channels(plan);
  const auto kills = out_of_memory_kills(plan.root);
  std::vector<ChildProcess> ranks;
  for (int rank = 0; rank < plan.ranks; ++rank) ranks.emplace_back(rank_command(plan, channels, rank));
  const int exit_code = Supervisor(std::move(ranks), channels, signals, plan, kills).run();
  messages().drain(kPromptEnd);
  return exit_code;
}

}  // namespace chimera
