#include "launch/hosts/part.h"

#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/console.h"
#include "core/error.h"
#include "core/parse_number.h"
#include "launch/hosts/hosts.h"
#include "launch/local/environment.h"
#include "launch/local/launcher.h"
#include "launch/local/process.h"
#include "launch/local/signal_inbox.h"
#include "launch/local/verdict.h"

namespace chimera {
namespace {

constexpr std::size_t kLongestLine = std::size_t{1} << 20U;

/// Lines that come through a descriptor.
class Lines {
 public:
  explicit Lines(int input) : input_(input) {}
  [[nodiscard]] int descriptor() const { return input_; }
  [[nodiscard]] bool ended() const { return ended_; }

  /// Takes in what is there now; waits where nothing is.
  void read() {
    std::array<char, 4096> buffer{};
    const ssize_t got = ::read(input_, buffer.data(), buffer.size());
    if (got > 0 && text_.size() < kLongestLine) {
      text_.append(buffer.data(), static_cast<std::size_t>(got));
    } else if (got >= 0 || errno != EINTR) {
      ended_ = true;
    }
  }
  std::optional<std::string> next() {
    const auto end = text_.find('\n');
    if (end == std::string::npos) return std::nullopt;
    std::string line = text_.substr(0, end);
    text_.erase(0, end + 1);
    return line;
  }

 private:
  int input_;
  std::string text_;
  bool ended_ = false;
};

PartOrder read_order(Lines& lines) {
  while (!lines.ended()) {
    if (const auto line = lines.next()) return parse_part(*line);
    lines.read();
  }
  return parse_part("");
}

Command rank_command(const PartOrder& order, int place) {
  Command command{
      .executable = own_executable(), .arguments = order.arguments, .environment = order.variables, .descriptors = {}};
  const auto set = [&](const char* name, auto value) {
    command.environment.push_back(fmt::format("{}={}", name, value));
  };
  set(kRankVariable, order.ranks.first + place);
  set(kWorldSizeVariable, order.world_size);
  set(kLocalRankVariable, place);
  set(kLocalSizeVariable, order.ranks.count);
  set(kPartVariable, ::getpid());
  return command;
}

/// The ranks of one host, from their start to the end of the last.
class PartWatch {
 public:
  PartWatch(const PartOrder& order, Lines& lines, SignalInbox& signals)
      : order_(order), lines_(lines), signals_(signals), records_(static_cast<std::size_t>(order.ranks.count)) {
    for (int place = 0; place < order.ranks.count; ++place) ranks_.emplace_back(rank_command(order, place));
  }

  int run() {
    while (std::ranges::any_of(ranks_, [](const ChildProcess& rank) { return rank.running(); })) {
      wait_for_news();
      reap();
      read_signals();
      judge();
    }
    return exit_code();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void wait_for_news() {
    std::vector<pollfd> watched = {{signals_.fd(), POLLIN, 0}, {lines_.ended() ? -1 : lines_.descriptor(), POLLIN, 0}};
    for (const ChildProcess& rank : ranks_) watched.push_back({rank.pidfd(), POLLIN, 0});
    int timeout = -1;
    if (grace_) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(*grace_ - Clock::now());
      timeout = static_cast<int>(std::max<std::int64_t>(left.count(), 0));
    }
    if (::poll(watched.data(), watched.size(), timeout) < 0 && errno != EINTR) check_system(-1, "watch the ranks");
    if (watched[1].revents != 0) lines_.read();
  }

  void reap() {
    for (std::size_t place = 0; place < ranks_.size(); ++place) {
      if (!ranks_[place].running()) continue;
      records_[place].ending = ranks_[place].reap();
      if (!records_[place].ending || ended_) continue;
      if (part_of(records_[place]) != Part::None) failures_.push_back(static_cast<int>(place));
    }
  }

  void read_signals() {
    while (const auto number = signals_.next()) signal_ = signal_.value_or(*number);
    while (const auto line = lines_.next()) {
      const auto number = parse_number<int>(*line);
      if (number && ranks_.front().running()) ranks_.front().send(*number);
    }
    if (lines_.ended()) signal_ = signal_.value_or(SIGTERM);  // nobody is left who wants the job
  }

  void judge() {
    if (ended_) return;
    if (signal_) return end_all();
    if (failures_.empty()) return;
    culprit_ = find_culprit(records_, failures_);
    if (!culprit_ && !grace_) grace_ = Clock::now() + kVictimGrace;
    if (!culprit_ && Clock::now() < *grace_) return;
    if (culprit_ && record_of_culprit().ending->kind == Ending::Kind::Killed) {  // it could not say so itself
      messages().write(fmt::format("chimera: {}, on {}\n",
                                   describe_failure(order_.ranks.first + *culprit_, record_of_culprit()),
                                   order_.ranks.host));
    }
    end_all();
  }

  void end_all() {
    ended_ = true;
    grace_.reset();
    for (const ChildProcess& rank : ranks_) {
      if (rank.running()) rank.send(SIGKILL);
    }
  }

  [[nodiscard]] const RankRecord& record_of_culprit() const { return records_[static_cast<std::size_t>(*culprit_)]; }

  [[nodiscard]] int exit_code() const {
    if (culprit_) return job_exit_code(record_of_culprit());
    if (!failures_.empty()) return static_cast<int>(ExitCode::PeerLost);
    if (ended_) return exit_code_of_signal(*signal_);
    const bool saved = std::ranges::any_of(records_, [](const RankRecord& record) {
      return record.ending && record.ending->value == static_cast<int>(kSavedExit);
    });
    return static_cast<int>(saved ? kSavedExit : ExitCode::Success);
  }

  const PartOrder& order_;
  Lines& lines_;
  SignalInbox& signals_;
  std::vector<ChildProcess> ranks_;
  std::vector<RankRecord> records_;
  std::vector<int> failures_;  ///< places of ranks, as they were seen to fail
  std::optional<int> culprit_;
  std::optional<int> signal_;
  std::optional<Clock::time_point> grace_;  ///< until which victims wait for one to blame
  bool ended_ = false;
};

}  // namespace

int run_part(int input) {
  SignalInbox signals;  // before the first rank, so that no signal finds ranks and no reader
  Lines lines(input);
  const PartOrder order = read_order(lines);
  const int code = PartWatch(order, lines, signals).run();
  messages().drain(kPromptEnd);
  return code;
}

}  // namespace chimera
