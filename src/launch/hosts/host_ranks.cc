#include "launch/hosts/host_ranks.h"

#include <signal.h>
#include <unistd.h>

#include <fmt/format.h>
#include <chrono>
#include <optional>
#include <vector>

#include "core/choices.h"
#include "core/console.h"
#include "core/invariant.h"
#include "launch/local/failure_report.h"
#include "launch/local/launch_plan.h"
#include "launch/local/place.h"

namespace chimera {
namespace {

Command rank_command(const HostOrder& order, int place) {
  Command command{.executable = own_executable(), .arguments = order.arguments, .environment = order.variables};
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

/// The ranks of one host, from their start to the last exit. They print their own failure reports, so only a rank that
/// was killed, and could not report, is named here.
class HostRanksRun {
 public:
  HostRanksRun(const HostOrder& order, LineReader& lines, SignalInbox& signals)
      : order_(order), lines_(lines), signals_(signals), outcomes_(static_cast<std::size_t>(order.ranks.count)) {
    for (int place = 0; place < order.ranks.count; ++place) ranks_.add(ChildProcess(rank_command(order, place)));
  }

  int run() {
    while (ranks_.has_running()) {
      const ChildEvents events = ranks_.wait(signals_, lines_.has_ended() ? -1 : lines_.descriptor(), grace_);
      for (const auto& [place, ending] : events.exits) note_end(place, ending);
      if (events.has_input) lines_.read();
      read_signals();
      decide();
    }
    return exit_code();
  }

 private:
  using Clock = std::chrono::steady_clock;

  void note_end(std::size_t place, const Ending& ending) {
    require_invariant(!outcomes_[place].ending, fmt::format("rank {} has ended twice", order_.ranks.first + place));
    outcomes_[place].ending = ending;
    const bool fails = !is_ending_ && failure_role(outcomes_[place]) != FailureRole::None;
    if (fails) failures_.push_back(static_cast<int>(place));
  }

  /// The launcher's lines are signal numbers for the first rank. The end of its input means that the launcher, or the
  /// connection to it, is gone; ranks without a launcher must not go on.
  void read_signals() {
    while (const auto number = signals_.next()) signal_ = signal_.value_or(*number);
    while (const auto line = lines_.next()) {
      const auto number = parse_number<int>(*line);
      if (number && ranks_[0].is_running()) ranks_[0].send(*number);
    }
    if (lines_.has_ended()) signal_ = signal_.value_or(SIGTERM);  // the launcher is gone
  }

  void decide() {
    if (is_ending_) return;
    if (signal_) return end_all();
    if (failures_.empty()) return;
    culprit_ = find_culprit(outcomes_, failures_);
    if (!culprit_ && !grace_) grace_ = Clock::now() + kVictimGrace;
    if (!culprit_ && Clock::now() < *grace_) return;
    if (culprit_ && outcome_of_culprit().ending->kind == Ending::Kind::Killed) {  // it sent no failure report
      messages().write(fmt::format("chimera: {}, on {}\n",
                                   describe_failure(order_.ranks.first + *culprit_, outcome_of_culprit()),
                                   order_.ranks.host));
    }
    end_all();
  }

  /// Kills at once. SIGTERM would make ranks with checkpoints save, and wait for ranks that are gone.
  void end_all() {
    is_ending_ = true;
    grace_.reset();
    ranks_.kill_running();
  }

  [[nodiscard]] const RankOutcome& outcome_of_culprit() const { return outcomes_[static_cast<std::size_t>(*culprit_)]; }

  [[nodiscard]] int exit_code() const {
    if (culprit_) return job_exit_code(outcome_of_culprit());
    if (!failures_.empty()) return static_cast<int>(ExitCode::PeerLost);
    if (is_ending_) return exit_code_of_signal(*signal_);
    return exit_code_without_failure(outcomes_);
  }

  const HostOrder& order_;
  LineReader& lines_;
  SignalInbox& signals_;
  ChildProcesses ranks_;
  std::vector<RankOutcome> outcomes_;
  std::vector<int> failures_;  ///< Local indices, in order of detection
  std::optional<int> culprit_;
  std::optional<int> signal_;
  std::optional<Clock::time_point> grace_;
  bool is_ending_ = false;
};

}  // namespace

HostOrder read_order(LineReader& lines) {
  while (!lines.has_ended()) {
    if (const auto line = lines.next()) return parse_order(*line);
    lines.read();
  }
  return parse_order("");
}

int run_host_ranks(int input) {
  SignalInbox signals;  // before the first rank, so that no signal is missed
  LineReader lines(input);
  const HostOrder order = read_order(lines);
  const int code = HostRanksRun(order, lines, signals).run();
  messages().drain(kDrainAfterFailure);
  return code;
}

}  // namespace chimera
