#include "launch/local/supervisor.h"

#include <signal.h>
#include <string.h>
#include <unistd.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "core/cgroup.h"
#include "core/clock.h"
#include "core/console.h"
#include "core/error.h"
#include "core/file_descriptor.h"
#include "launch/local/failure_report.h"
#include "launch/local/orders.h"

namespace chimera {

RankProcesses::RankProcesses(int ranks, int most_recoveries, RankGroups copies, ProgressPage& progress,
                             RankStarter start)
    : progress_(progress), start_(std::move(start)), most_(most_recoveries) {
  if (most_ > 0) {
    recovery_.emplace(ranks, std::move(copies), most_);
    orders_.resize(static_cast<std::size_t>(ranks));
  }
  for (int rank = 0; rank < ranks; ++rank) {
    if (recovery_) {
      OrderChannel channel = open_order_channel();
      orders_[static_cast<std::size_t>(rank)] = std::move(channel.launcher);
      ranks_.add(start_(rank, 0, channel.rank.get()));
    } else {
      ranks_.add(start_(rank, 0, -1));
    }
  }
}

bool RankProcesses::is_lost(int rank) const { return std::ranges::find(lost_, rank) != lost_.end(); }

std::string RankProcesses::lose(const std::vector<int>& ranks, const std::string& reason, std::int64_t step) {
  const bool is_first = !is_recovering();
  auto [why_not, begins_epoch] = recovery_->lose(ranks, step);
  if (!why_not.empty()) return why_not;
  if (is_first) {
    reason_ = reason;
    step_ = step;
    lost_since_ = Clock::now();
  } else {
    reason_ += "; " + reason;
  }
  for (const int rank : ranks) {
    if ((*this)[rank].running()) (*this)[rank].send(SIGKILL);
    if (!is_lost(rank)) lost_.push_back(rank);
  }
  if (!begins_epoch) return "";
  const Order leave{Order::Kind::Leave, static_cast<std::int32_t>(recovery_->epoch())};
  for (std::size_t rank = 0; rank < orders_.size(); ++rank) {
    if (!is_lost(static_cast<int>(rank))) send_order(orders_[rank].get(), leave);
  }
  return "";
}

std::vector<int> RankProcesses::advance() {
  std::vector<int> started;
  std::erase_if(lost_, [&](int rank) {
    if ((*this)[rank].running()) return false;
    started.push_back(rank);
    return true;
  });
  for (const int rank : started) start(rank);
  if (recovery_ && lost_.empty() && recovery_->all_left()) order_to_join();
  return started;
}

/// Resets the progress: the lost rank's activity must not be attributed to its replacement.
void RankProcesses::start(int rank) {
  const auto index = static_cast<std::size_t>(rank);
  progress_.note(rank, {RankProgress::Phase::StartUp});
  OrderChannel channel = open_order_channel();
  orders_[index] = std::move(channel.launcher);
  ranks_.replace(index, start_(rank, recovery_->epoch(), channel.rank.get()));
}

void RankProcesses::order_to_join() {
  recovery_->join();
  const FileDescriptor store = make_memory_file("chimera-store", 0);
  const Order join{Order::Kind::Join, static_cast<std::int32_t>(recovery_->epoch())};
  for (const FileDescriptor& orders : orders_) send_order(orders.get(), join, store.get());
}

std::optional<std::string> RankProcesses::finish() {
  if (!recovery_ || !recovery_->all_resumed()) return std::nullopt;
  recovery_->finish();
  const double seconds = std::chrono::duration<double>(Clock::now() - lost_since_).count();
  const std::string place = fmt::format(" in step {}", step_);
  return fmt::format("{}{}; recovery {} of {}: continues with step {} after {:.2f} s", reason_,
                     reason_.ends_with(place) ? "" : place, recovery_->done(), most_, recovery_->resumed_after() + 1,
                     seconds);
}

namespace {

using std::chrono::milliseconds;
using Phase = RankProgress::Phase;

constexpr milliseconds kTerminationGrace{500};  ///< from SIGTERM to SIGKILL

bool was_killed(const Ending& ending) { return ending.kind == Ending::Kind::Killed && ending.value == SIGKILL; }

bool has_saved(const RankRecord& record) {
  return record.ending && record.ending->kind == Ending::Kind::Exited &&
         record.ending->value == static_cast<int>(kSavedExit);
}

std::string in_words(int signal_number) {
  return fmt::format("signal {} ({})", signal_number, ::sigdescr_np(signal_number));
}

}  // namespace

Supervisor::Supervisor(RankProcesses ranks, const RankChannels& channels, SignalInbox& signals, const LaunchPlan& plan,
                       std::optional<std::uint64_t> kills)
    : ranks_(std::move(ranks)),
      records_(static_cast<std::size_t>(plan.ranks)),
      reports_(channels.report_read),
      progress_(channels.progress),
      signals_(signals),
      plan_(plan),
      kills_(kills) {
  if (plan.hang.count() > 0) hang_watch_.emplace(plan.hang, plan.hang_at_start, plan.records_steps);
}

StartOutcome Supervisor::run() {
  while (ranks_.all().any_running()) {
    const ChildEvents events = ranks_.all().wait(signals_, reports_.get(), next_look());
    for (const auto& [rank, ending] : events.exits) note_end(rank, ending);
    read_reports();
    read_signals();
    judge();
    if (!verdict_) advance_recovery();
  }
  return outcome();
}

/// Returns when to act without an event.
std::optional<Supervisor::Clock::time_point> Supervisor::next_look() const {
  if (deadline_ || !hang_watch_) return deadline_;
  return Clock::now() + hang_watch_->interval();
}

void Supervisor::note_end(std::size_t rank, const Ending& ending) {
  RankRecord& record = records_[rank];
  record.ending = ending;
  if (!verdict_) record.out_of_memory = was_killed(ending) && memory_ran_out();
}

bool Supervisor::memory_ran_out() const {
  const auto now = out_of_memory_kills(plan_.root);
  return now && kills_ && *now > *kills_;
}

/// Reads reports, then lists newly failed ranks: first ranks with a report, in order of arrival.
void Supervisor::read_reports() {
  std::array<char, 4096> buffer;
  for (ssize_t size = 0; (size = ::read(reports_.get(), buffer.data(), buffer.size())) > 0;) {
    unread_.append(buffer.data(), static_cast<std::size_t>(size));
  }
  for (auto end = unread_.find('\n'); end != std::string::npos; end = unread_.find('\n')) {
    const std::string_view line = std::string_view(unread_).substr(0, end);
    const auto progress = ranks_.may_recover() ? parse_note(line) : std::nullopt;
    if (progress) {
      ranks_.note(*progress);
    } else {
      note(parse_report(line));
    }
    unread_.erase(0, end + 1);
  }
  for (std::size_t rank = 0; rank < records_.size(); ++rank) note_failure(static_cast<int>(rank));
}

void Supervisor::note(const std::optional<FailureReport>& report) {
  if (!report || report->rank < 0 || report->rank >= static_cast<int>(records_.size())) return;
  if (ranks_.is_leaving() && !report->own_cause) return;
  RankRecord& record = record_of(report->rank);
  if (!record.report) record.report = report;  // the first report names the cause
  note_failure(report->rank);
}

void Supervisor::note_failure(int rank) {
  const bool known = ranks_.is_lost(rank) || std::ranges::find(failures_, rank) != failures_.end();
  if (!known && failure_role(record_of(rank)) != FailureRole::None) failures_.push_back(rank);
}

void Supervisor::read_signals() {
  while (const auto number = signals_.next()) take_signal(*number);
}

/// The first signal makes ranks save if they can. SIGINT, a later signal, or a signal without saving ends the job.
void Supervisor::take_signal(int number) {
  if (signal_) return;
  const bool can_save = plan_.saves && (ranks_.is_recovering() || all_are_in({Phase::Steps, Phase::Ending}));
  if (number == SIGINT || !can_save) {
    signal_ = number;
  } else if (!saving_) {
    saving_ = Clock::now();
    messages().write(
        fmt::format("chimera: {}: saves after this step and ends; a second signal ends at once\n", in_words(number)));
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      if (ranks_[rank].running() && ranks_.has_trained(rank)) ranks_[rank].send(SIGUSR1);
    }
  } else if (Clock::now() - *saving_ >= kSameSignal) {
    signal_ = number;
  }
}

/// Before its first step a job has nothing to save or recover.
bool Supervisor::all_are_in(std::initializer_list<RankProgress::Phase> phases) const {
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (std::ranges::find(phases, progress_.last(rank).phase) == phases.end()) return false;
  }
  return true;
}

void Supervisor::judge() {
  const bool over_time = deadline_ && Clock::now() >= *deadline_;
  if (verdict_) {
    if (over_time) kill_rest();
  } else if (signal_) {
    end_job("ended by " + in_words(*signal_));
  } else if (!failures_.empty()) {
    judge_failures(over_time);
  } else if (hangs()) {
    end_hang();
  }
}

void Supervisor::judge_failures(bool over_time) {
  auto culprit = find_culprit(records_, failures_);
  if (!culprit && (over_time || !ranks_.all().any_running())) culprit = failures_.front();
  if (!culprit) {
    if (!deadline_) deadline_ = Clock::now() + kVictimGrace;
  } else if (!lose_failed(*culprit)) {
    blame(*culprit);
  }
}

/// Replaces all failed ranks, except running ranks that only lost a peer.
bool Supervisor::lose_failed(int culprit) {
  std::vector<int> lost;
  std::vector<std::string> reasons;
  for (const int rank : failures_) {
    const bool is_victim = failure_role(record_of(rank)) == FailureRole::Victim;
    if (is_victim && ranks_[rank].running()) continue;
    if (is_final(record_of(rank))) return false;
    lost.push_back(rank);
    if (!is_victim) reasons.push_back(describe_failure(rank, record_of(rank)));
  }
  if (reasons.empty()) reasons.push_back(describe_failure(culprit, record_of(culprit)));
  return lose(lost, culprit, fmt::format("{}", fmt::join(reasons, "; ")));
}

/// Returns whether the job can continue.
bool Supervisor::lose(const std::vector<int>& ranks, int culprit, const std::string& reason) {
  if (!ranks_.may_recover() || (!ranks_.is_recovering() && !all_are_in({Phase::Steps}))) return false;
  const std::string why_not = ranks_.lose(ranks, reason, progress_.last(culprit).step);
  if (!why_not.empty()) {
    messages().write("chimera: " + why_not + "\n");
    return false;
  }
  for (RankRecord& record : records_) record = {};
  failures_.clear();
  deadline_.reset();
  watch_anew();
  return true;
}

void Supervisor::advance_recovery() {
  if (!ranks_.is_recovering()) return;
  for (const int rank : ranks_.advance()) record_of(rank) = {};
  if (const auto line = ranks_.finish()) {
    messages().write("chimera: " + *line + "\n");
    watch_anew();
  }
}

/// Restarts hang detection, with the limit of start-up.
void Supervisor::watch_anew() {
  if (plan_.hang.count() > 0) hang_watch_.emplace(plan_.hang, std::chrono::milliseconds(0), plan_.records_steps);
}

bool Supervisor::hangs() {
  if (!hang_watch_) return false;
  HangWatch::Look look = look_at(progress_, plan_.ranks);
  if (plan_.waits_idle) {
    for (const ChildProcess& rank : ranks_.all()) look.work.push_back(rank.processor_time());
  }
  look.waits_for_disk =
      std::ranges::any_of(ranks_.all(), [](const ChildProcess& rank) { return rank.waits_for_disk(); });
  look.stopped = std::ranges::any_of(ranks_.all(), [](const ChildProcess& rank) { return rank.stopped(); });
  return hang_watch_->look(Clock::now(), look);
}

void Supervisor::end_hang() {
  std::vector<StuckRank> stuck;
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (!ranks_[rank].running()) continue;
    stuck.push_back({rank, ranks_[rank].stopped(), progress_.last(rank)});
  }
  if (stuck.empty()) return;  // the last rank has ended
  const StuckRank& found = find_stuck(stuck);
  const std::string reason = describe_hang(found, hang_watch_->pause());
  if (lose({found.rank}, found.rank, reason)) return;
  hung_ = true;
  culprit_ = found.rank;
  end_job(reason);
}

void Supervisor::blame(int rank) {
  culprit_ = rank;
  end_job(describe_failure(rank, record_of(rank)));
}

/// Ends all ranks except the culprit, because its exit code is still needed. Ranks that save are killed, because they
/// take SIGTERM as a request to save.
void Supervisor::end_job(std::string reason) {
  if (ranks_.is_recovering() && !signal_) reason = ranks_.reason() + "; " + reason;
  messages().write("chimera: " + reason + "\n");
  verdict_ = FlightVerdict{.reason = reason,
                           .culprit = culprit_,
                           .op = culprit_ && record_of(*culprit_).report ? record_of(*culprit_).report->op : "",
                           .nanoseconds = monotonic_nanoseconds()};
  for (int rank = 0; rank < plan_.ranks; ++rank) {
    if (ranks_[rank].running() && culprit_ != rank) ranks_[rank].send(plan_.saves ? SIGKILL : SIGTERM);
  }
  deadline_ = Clock::now() + kTerminationGrace;
}

void Supervisor::kill_rest() {
  ranks_.all().kill_running();
  deadline_.reset();
}

StartOutcome Supervisor::outcome() {
  if (culprit_) {
    const RankProgress at = progress_.last(*culprit_);
    const int code = hung_ ? static_cast<int>(ExitCode::No) : job_exit_code(record_of(*culprit_));
    return {code, at.phase == RankProgress::Phase::Steps ? at.step : 0, verdict_};
  }
  if (signal_) return {signal_exit_code(), std::nullopt, verdict_};
  const bool saved = std::ranges::any_of(records_, has_saved);
  return {static_cast<int>(saved ? kSavedExit : ExitCode::Success), std::nullopt, std::nullopt};
}

/// A run without anything to save yet can be resumed like a saved run.
int Supervisor::signal_exit_code() const {
  const bool loses_nothing = plan_.saves && !saving_ && *signal_ != SIGINT;
  return loses_nothing ? static_cast<int>(kSavedExit) : exit_code_of_signal(*signal_);
}

}  // namespace chimera
