#include "launch/local/supervisor.h"

#include <signal.h>
#include <sys/auxv.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <algorithm>
#include <initializer_list>

#include "core/cgroup.h"
#include "core/clock.h"
#include "core/console.h"
#include "launch/flight/hang.h"
#include "launch/local/failure_report.h"
#include "launch/local/recovery.h"

// One thread does everything, in one loop (Supervisor::run()): it waits for an event, reads all that have happened, and
// then decides once. Events only add facts to the members of Supervisor; decide() and advance_recovery() act on the
// processes. The exception is the request to save, which goes to the ranks at once. RankProcesses holds the processes
// and, if the job recovers lost ranks, the state machine of recovery.h. Once end_job() has set `verdict_`, the loop
// only waits until the last process has ended, and kills what is left at `deadline_`.

namespace chimera {
namespace {

using Phase = RankProgress::Phase;

constexpr std::chrono::milliseconds kTerminationGrace{500};        // from SIGTERM to SIGKILL
constexpr std::chrono::milliseconds kRelayTerminationGrace{5000};  // while relays wait for ranks on other hosts

/// Translates LaunchPlan::spare_patience, where an empty value means to wait for a replacement without a limit, and
/// zero to start none.
Recovery::Replacement replacement_of(const LaunchPlan& plan) {
  if (!plan.spare_patience) return Recovery::Replacement::Required;
  return plan.spare_patience->count() > 0 ? Recovery::Replacement::Preferred : Recovery::Replacement::None;
}

/// The rank processes of a job attempt. It starts them, and in a recovery kills lost ranks, orders the others to leave,
/// starts replacements, and orders all to join. Recovery decides when each of these is allowed; Supervisor decides
/// which ranks are lost. The destructor kills running ones.
class RankProcesses {
 public:
  /// Starts all ranks.
  RankProcesses(const LaunchPlan& plan, ProgressPage& progress, const RankStarter& start)
      : plan_(plan),
        progress_(progress),
        start_(start),
        recovery_(plan.ranks, plan.copies, plan.most_recoveries, replacement_of(plan), plan.shards,
                  plan.copies_of_group) {
    for (int rank = 0; rank < plan.ranks; ++rank) {
      // The rank's end closes with `channel`, so that later orders to a dead rank fail at once and fill no queue.
      OrderChannel channel = can_recover() ? open_order_channel() : OrderChannel();
      orders_.push_back(std::move(channel.launcher));
      ranks_.push_back(start_(rank, 0, channel.rank.get()));
    }
  }

  [[nodiscard]] std::vector<ChildProcess>& all() { return ranks_; }
  [[nodiscard]] const ChildProcess& operator[](int rank) const { return ranks_[static_cast<std::size_t>(rank)]; }

  [[nodiscard]] bool can_recover() const { return plan_.most_recoveries > 0; }
  /// Returns the state machine, which stays in State::Running if the job cannot recover.
  [[nodiscard]] const Recovery& recovery() const { return recovery_; }
  [[nodiscard]] bool is_recovering() const { return recovery_.state() != Recovery::State::Running; }
  /// Returns whether the rank is lost and has no replacement yet.
  [[nodiscard]] bool is_lost(int rank) const { return std::ranges::find(lost_, rank) != lost_.end(); }
  /// Returns whether the job does without the rank. Its process has ended, or starts to replace it later.
  [[nodiscard]] bool is_absent(int rank) const { return recovery_.is_absent(rank); }
  /// Returns the ranks that are not absent.
  [[nodiscard]] std::vector<int> present() const {
    std::vector<int> ranks;
    for (int rank = 0; rank < static_cast<int>(orders_.size()); ++rank)
      if (!is_absent(rank)) ranks.push_back(rank);
    return ranks;
  }
  /// Returns when the recovery goes on without the missing replacements.
  [[nodiscard]] std::optional<std::chrono::steady_clock::time_point> patience_end() const {
    const auto& patience = plan_.spare_patience;
    if (recovery_.state() != Recovery::State::Leaving || !patience || patience->count() == 0) return std::nullopt;
    // A further loss in the same recovery does not extend the wait, because `lost_since_` is the time of the first.
    return lost_since_ + *patience;
  }

  /// Kills these ranks and orders the others to leave the step; advance() then replaces them. If the job cannot
  /// continue, only returns why. Requires can_recover().
  [[nodiscard]] std::string handle_loss(const std::vector<int>& ranks, const std::string& reason, std::int64_t step) {
    // Asked before the next call, which begins the recovery.
    const bool is_first = !is_recovering();
    auto [why_not, begins_generation] = recovery_.handle_loss(ranks, step);
    if (!why_not.empty()) return why_not;
    if (is_first) {
      reason_ = reason;
      step_ = step;
      lost_since_ = Clock::now();
    } else {
      reason_ += "; " + reason;
    }
    for (const int rank : ranks) {
      // A lost rank may still run: it has only reported a failure, or it hangs.
      if ((*this)[rank].is_running()) (*this)[rank].send(SIGKILL);
      if (!is_lost(rank)) lost_.push_back(rank);
    }
    if (begins_generation) order_to_leave();
    return "";
  }

  /// Begins a generation with the processes that are ready to return. Returns their ranks; none if there are none.
  [[nodiscard]] std::vector<int> welcome() {
    // A process may have ended since it reported that it is ready.
    for (std::size_t rank = 0; rank < orders_.size(); ++rank)
      if (!ranks_[rank].is_running()) recovery_.forget_ready(static_cast<int>(rank));
    if (!recovery_.is_any_ready()) return {};
    const std::vector<int> ranks = recovery_.welcome();
    reason_ = fmt::format("rank {} returns", fmt::join(ranks, ", "));
    step_ = progress_.last(present().front()).step;
    lost_since_ = Clock::now();
    order_to_leave();
    return ranks;
  }

  void note(const RecoveryNote& note) { recovery_.note(note); }

  /// Continues a recovery. Returns the newly started ranks.
  ///
  /// A killed rank is replaced only once it is reaped: two processes with one rank would write to one progress slot.
  /// All join only after every rank has left, because a rank in its old step still uses the old store.
  [[nodiscard]] std::vector<int> advance() {
    std::vector<int> started;
    std::erase_if(lost_, [&](int rank) {
      if ((*this)[rank].is_running()) return false;
      if (!is_absent(rank)) started.push_back(rank);
      return true;
    });
    for (const int rank : started) start(rank);
    if (const auto end = patience_end(); lost_.empty() && end && Clock::now() >= *end) recovery_.leave_out_missing();
    if (lost_.empty() && recovery_.all_left()) order_to_join();
    return started;
  }

  /// Once the job has ended without a failure, kills the processes that wait to return.
  void end_absent() {
    const std::vector<int> ranks = present();
    const auto runs = [&](int rank) { return (*this)[rank].is_running(); };
    if (recovery_.absent().none() || std::ranges::any_of(ranks, runs)) return;
    kill_running(ranks_);
  }

  /// Once all ranks have resumed, ends the recovery and returns a summary line.
  [[nodiscard]] std::optional<std::string> finish() {
    if (!recovery_.all_resumed()) return std::nullopt;
    recovery_.finish();
    const double seconds = std::chrono::duration<double>(Clock::now() - lost_since_).count();
    // The description of a hang ends with its step already.
    const std::string place = fmt::format(" in step {}", step_);
    const std::string ranks =
        recovery_.absent().any() ? fmt::format(" on {} of {} ranks", present().size(), orders_.size()) : "";
    const std::int64_t next = recovery_.resumed_after() + 1;
    const bool is_end = progress_.steps() > 0 && next > progress_.steps();
    return fmt::format("{}{}; recovery {} of {}: continues with {} after {:.2f} s{}", reason_,
                       reason_.ends_with(place) ? "" : place, recovery_.done(), plan_.most_recoveries,
                       is_end ? "the end of the run" : fmt::format("step {}", next), seconds, ranks);
  }

  [[nodiscard]] const std::string& reason() const { return reason_; }

 private:
  using Clock = std::chrono::steady_clock;

  /// Resets the progress: the lost rank's activity must not be attributed to its replacement.
  void start(int rank) {
    const auto index = static_cast<std::size_t>(rank);
    progress_.note(rank, {.phase = RankProgress::Phase::StartUp});
    OrderChannel channel = open_order_channel();
    orders_[index] = std::move(channel.launcher);
    ranks_[index] = start_(rank, recovery_.generation(), channel.rank.get());
  }

  void order_to_leave() {
    const Order leave{.kind = Order::Kind::Leave, .generation = recovery_.generation()};
    for (const int rank : present())
      if (!is_lost(rank)) send_order(orders_[static_cast<std::size_t>(rank)].get(), leave);
  }

  void order_to_join() {
    recovery_.join();
    // Each generation has a new store, because keys of an earlier one would be taken for its own. Each order carries a
    // duplicate of the descriptor, so this one may close at the end.
    const FileDescriptor store = make_memory_file("chimera-store", 0);
    Order join{.kind = Order::Kind::Join, .generation = recovery_.generation(), .absent = recovery_.absent()};
    const bool needs_copies = recovery_.needs_extra_copies();
    const auto copies = needs_copies ? recovery_.extra_copies() : std::vector<GroupHolder>{};
    join.num_extra_copies = copies.size();
    std::ranges::copy(copies, join.extra_copies.begin());
    for (const int rank : present()) send_order(orders_[static_cast<std::size_t>(rank)].get(), join, store.get());
  }

  const LaunchPlan& plan_;
  ProgressPage& progress_;
  const RankStarter& start_;
  Recovery recovery_;
  std::vector<ChildProcess> ranks_;     // [rank]
  std::vector<FileDescriptor> orders_;  // [rank]; may be empty
  std::vector<int> lost_;
  std::string reason_;
  std::int64_t step_ = 0;  // step of the first lost rank
  Clock::time_point lost_since_;
};

/// Supervises the rank processes of an attempt. Each poll reads all pending events before it decides, so that a rank's
/// report or a signal to the process group takes precedence over the deaths it causes.
class Supervisor {
 public:
  Supervisor(RankChannels& channels, SignalInbox& signals, const LaunchPlan& plan, const RankStarter& start)
      : kills_(out_of_memory_kills(plan.root)),
        ranks_(plan, channels.progress, start),
        outcomes_(static_cast<std::size_t>(plan.ranks)),
        reports_(channels.reports.read.get()),
        progress_(channels.progress),
        signals_(signals),
        plan_(plan) {
    if (plan.hang.count() > 0) hang_watch_.emplace(plan.hang, plan.hang_at_start, plan.records_steps);
  }

  [[nodiscard]] StartOutcome run() {
    while (has_running(ranks_.all())) {
      for (const auto& [rank, ending] : wait_for_exits(ranks_.all(), signals_, reports_.descriptor(), next_poll()))
        note_end(rank, ending);
      read_reports();
      while (const auto number = signals_.next()) handle_signal(*number);
      decide();
      if (!verdict_) advance_recovery();
    }
    return outcome();
  }

 private:
  using Clock = std::chrono::steady_clock;

  /// Returns when to act without an event.
  [[nodiscard]] std::optional<Clock::time_point> next_poll() const {
    // Until a deadline, decide() judges no hangs, so their interval does not matter.
    if (deadline_) return deadline_;
    std::optional<Clock::time_point> next = ranks_.patience_end();
    if (hang_watch_) next = std::min(next.value_or(Clock::time_point::max()), Clock::now() + hang_watch_->interval());
    return next;
  }

  /// After the verdict, ranks die by the launcher's own signals, so kills no longer tell of missing memory.
  void note_end(std::size_t rank, const Ending& ending) {
    if (ranks_.is_absent(static_cast<int>(rank))) return;
    RankOutcome& outcome = outcomes_[rank];
    outcome.ending = ending;
    if (verdict_ || !ending.was_killed_by(SIGKILL)) return;
    const auto kills = out_of_memory_kills(plan_.root);
    outcome.out_of_memory = kills && kills_ && *kills > *kills_;
  }

  /// Reads reports, then lists newly failed ranks: first ranks with a report, in order of arrival.
  void read_reports() {
    reports_.read_available();
    while (const auto line = reports_.next()) {
      // A line parses as one of the two types only: each needs fields that the other does not have.
      const auto progress = ranks_.can_recover() ? parse_note(*line) : std::nullopt;
      if (progress)
        ranks_.note(*progress);
      else
        note_report(parse_report(*line));
    }
    for (int rank = 0; rank < plan_.ranks; ++rank) note_failure(rank);
  }

  void note_report(const std::optional<FailureReport>& report) {
    if (!report || report->rank < 0 || report->rank >= plan_.ranks || ranks_.is_absent(report->rank)) return;
    const bool is_leaving = ranks_.recovery().state() == Recovery::State::Leaving;
    if (is_leaving && !report->own_cause) return;  // its connections were broken on purpose
    RankOutcome& outcome = outcome_of(report->rank);
    if (!outcome.report) outcome.report = report;  // the first report names the cause
    note_failure(report->rank);
  }

  void note_failure(int rank) {
    const bool is_known = ranks_.is_lost(rank) || std::ranges::find(failures_, rank) != failures_.end();
    if (!is_known && failure_role(outcome_of(rank)) != FailureRole::None) failures_.push_back(rank);
  }

  /// The first signal makes ranks save if they can. SIGINT, a later signal, or a signal without saving ends the job.
  void handle_signal(int number) {
    if (signal_) return;
    // Before its first step a job has nothing to save.
    // In a recovery some ranks are not in their steps, but all had begun them before it.
    const bool can_save = plan_.saves && (ranks_.is_recovering() || are_all_in({Phase::Steps, Phase::Ending}));
    if (number == SIGINT || !can_save) {
      signal_ = number;
    } else if (!saving_) {
      saving_ = Clock::now();
      print_message(describe_signal(number) + ": saves after this step and ends; a second signal ends at once");
      for (int rank = 0; rank < plan_.ranks; ++rank)
        // A rank without weights has not trained, and so does not handle the signal.
        if (ranks_[rank].is_running() && ranks_.recovery().has_weights(rank)) ranks_[rank].send(SIGUSR1);
    } else if (Clock::now() - *saving_ >= kSameSignal) {
      signal_ = number;
    }
  }

  [[nodiscard]] bool are_all_in(std::initializer_list<Phase> phases) const {
    return std::ranges::all_of(ranks_.present(), [&](int rank) {
      return std::ranges::find(phases, progress_.last(rank).phase) != phases.end();
    });
  }

  /// The order matters: an ending job only waits, and a signal of the user takes precedence over failures, which it may
  /// have caused. Silence is judged last, since a rank that has failed makes the others wait.
  void decide() {
    const bool is_over_time = deadline_ && Clock::now() >= *deadline_;
    if (verdict_ && is_over_time) {
      kill_running(ranks_.all());
      deadline_.reset();
    } else if (verdict_) {
      return;
    } else if (signal_) {
      end_job("ended by " + describe_signal(*signal_));
    } else if (!failures_.empty()) {
      handle_failures(is_over_time);
    } else if (is_hanging()) {
      handle_hang();
    }
  }

  /// A victim's report often arrives before the culprit's, whose death caused it, so victims alone are given time.
  void handle_failures(bool is_over_time) {
    auto culprit = find_culprit(outcomes_, failures_);
    // With no rank left, or no time, no report of a culprit can follow.
    if (!culprit && (is_over_time || !has_running(ranks_.all()))) culprit = failures_.front();
    if (!culprit) {
      if (!deadline_) deadline_ = Clock::now() + kVictimGrace;
    } else if (!replace_failed_ranks(*culprit)) {
      end_job(describe_failure(*culprit, outcome_of(*culprit)), culprit);
    }
  }

  /// Replaces all failed ranks, except running ranks that only lost a peer. Returns whether the job can continue.
  bool replace_failed_ranks(int culprit) {
    std::vector<int> lost;
    std::vector<std::string> reasons;
    for (const int rank : failures_) {
      const bool is_victim = failure_role(outcome_of(rank)) == FailureRole::Victim;
      if (is_victim && ranks_[rank].is_running()) continue;
      if (is_final(outcome_of(rank))) return false;
      lost.push_back(rank);
      if (!is_victim) reasons.push_back(describe_failure(rank, outcome_of(rank)));
    }
    if (reasons.empty()) reasons.push_back(describe_failure(culprit, outcome_of(culprit)));
    return recover_from(lost, culprit, fmt::format("{}", fmt::join(reasons, "; ")));
  }

  /// Returns whether the job can continue. Before its first step it has nothing to recover.
  bool recover_from(const std::vector<int>& lost, int culprit, const std::string& reason) {
    if (!ranks_.can_recover() || (!ranks_.is_recovering() && !are_all_in({Phase::Steps}))) return false;
    const std::string why_not = ranks_.handle_loss(lost, reason, progress_.last(culprit).step);
    if (!why_not.empty()) {
      print_message(why_not);
      return false;
    }
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      // Reports of running ranks are about connections that no longer matter. A lost rank that has ended keeps its
      // outcome until its replacement starts, see advance_recovery().
      if (ranks_[rank].is_running() || ranks_.is_absent(rank)) outcome_of(rank) = {};
    }
    failures_.clear();
    deadline_.reset();
    restart_hang_watch();
    return true;
  }

  void advance_recovery() {
    ranks_.end_absent();
    welcome_absent();
    if (!ranks_.is_recovering()) return;
    for (const int rank : ranks_.advance()) outcome_of(rank) = {};
    if (const auto line = ranks_.finish()) {
      print_message(*line);
      restart_hang_watch();
      // Another process may have become ready during this recovery.
      welcome_absent();
    }
  }

  /// Lets ranks return that the job does without, once their processes are ready.
  void welcome_absent() {
    if (!ranks_.can_recover() || ranks_.is_recovering() || !are_all_in({Phase::Steps})) return;
    // A rank that has ended its steps cannot leave them any more. From other hosts, progress arrives late.
    const std::int64_t steps_before_end = plan_.hosts.empty() ? 3 : 13;
    const bool is_near_end = std::ranges::any_of(ranks_.present(), [&](int rank) {
      return plan_.last_step > 0 && progress_.last(rank).step > plan_.last_step - steps_before_end;
    });
    if (is_near_end) return;
    if (!ranks_.welcome().empty()) restart_hang_watch();
  }

  /// Restarts hang detection.
  void restart_hang_watch() {
    if (hang_watch_) hang_watch_.emplace(plan_.hang, plan_.hang_after_loss, plan_.records_steps);
  }

  /// Processor time tells a rank that computes for long from one that hangs. Ranks that wait for a GPU use it, too.
  [[nodiscard]] bool is_hanging() {
    if (!hang_watch_) return false;
    HangWatch::Observation now = observe(progress_, ranks_.present());
    for (const ChildProcess& rank : ranks_.all()) {
      // Ranks that poll a GPU use processor time while they wait, so it shows nothing then.
      if (plan_.waits_idle) now.work.push_back(rank.processor_time());
      now.is_waiting_for_disk = now.is_waiting_for_disk || rank.is_waiting_for_disk();
      now.is_stopped = now.is_stopped || rank.is_stopped();
    }
    return hang_watch_->update(Clock::now(), now);
  }

  void handle_hang() {
    std::vector<StuckRank> stuck;
    for (int rank = 0; rank < plan_.ranks; ++rank) {
      if (!ranks_[rank].is_running() || ranks_.is_absent(rank)) continue;
      stuck.push_back({.rank = rank, .is_stopped = ranks_[rank].is_stopped(), .progress = progress_.last(rank)});
    }
    if (stuck.empty()) return;  // the last rank has ended
    const StuckRank& found = find_stuck(stuck);
    const std::string reason = describe_hang(found, hang_watch_->pause());
    // If all wait for one another while they connect, none of them is at fault, and they connect again.
    const bool is_joining = ranks_.recovery().state() == Recovery::State::Joining;
    const bool is_deadlock = is_joining && !found.is_stopped && waits_for_others(found.progress);
    const std::vector<int> lost = is_deadlock ? std::vector<int>() : std::vector{found.rank};
    if (!recover_from(lost, found.rank, reason)) end_job(reason, found.rank);
  }

  /// Ends all ranks except the culprit, because its exit code is still needed. Ranks that save are killed, because they
  /// take SIGTERM as a request to save. Relays get SIGTERM: each waits until its rank has ended, so that ranks of a
  /// restarted job never meet those of the last attempt.
  void end_job(std::string reason, std::optional<int> culprit = std::nullopt) {
    if (ranks_.is_recovering() && !signal_) reason = ranks_.reason() + "; " + reason;
    const bool has_relays = !plan_.hosts.empty();
    const std::string host = culprit && has_relays ? plan_.hosts[static_cast<std::size_t>(*culprit)] : "";
    if (!host.empty() && reason.find("host " + host) == std::string::npos) reason += ", on " + host;
    print_message(reason);
    verdict_ = FlightVerdict{.reason = reason,
                             .culprit = culprit,
                             .op = culprit && outcome_of(*culprit).report ? outcome_of(*culprit).report->op : "",
                             .nanoseconds = monotonic_nanoseconds()};
    for (int rank = 0; rank < plan_.ranks; ++rank)
      if (ranks_[rank].is_running() && culprit != rank)
        ranks_[rank].send(plan_.saves && !has_relays ? SIGKILL : SIGTERM);
    deadline_ = Clock::now() + (has_relays ? kRelayTerminationGrace : kTerminationGrace);
  }

  /// A failure decides before a signal, and both before an exit after saving.
  [[nodiscard]] StartOutcome outcome() const {
    if (verdict_ && verdict_->culprit) {
      const int culprit = *verdict_->culprit;
      const RankProgress at = progress_.last(culprit);
      return {.exit_code = job_exit_code(outcomes_[static_cast<std::size_t>(culprit)]),
              .failed_step = at.phase == Phase::Steps ? at.step : 0,
              .asked_to_save = saving_.has_value(),
              .verdict = verdict_};
    }
    if (signal_) return {.exit_code = signal_exit_code(), .verdict = verdict_};
    return {.exit_code = exit_code_without_failure(outcomes_)};
  }

  /// A run without anything to save yet can be resumed like a saved run.
  [[nodiscard]] int signal_exit_code() const {
    const bool loses_nothing = plan_.saves && !saving_ && *signal_ != SIGINT;
    return loses_nothing ? static_cast<int>(kSavedExit) : exit_code_of_signal(*signal_);
  }

  RankOutcome& outcome_of(int rank) { return outcomes_[static_cast<std::size_t>(rank)]; }

  // Before `ranks_`, whose constructor starts the ranks.
  std::optional<std::uint64_t> kills_;  ///< out_of_memory_kills() before the start
  RankProcesses ranks_;
  std::vector<RankOutcome> outcomes_;
  LineReader reports_;
  const ProgressPage& progress_;
  SignalInbox& signals_;
  const LaunchPlan& plan_;
  std::vector<int> failures_;  ///< in order of detection
  std::optional<HangWatch> hang_watch_;
  std::optional<int> signal_;                  ///< signal that ends the job
  std::optional<Clock::time_point> saving_;    ///< Time of the request to save
  std::optional<FlightVerdict> verdict_;       ///< Set once the job ends
  std::optional<Clock::time_point> deadline_;  ///< End of the wait for a culprit, or for ranks to end
};

}  // namespace

std::string own_executable() {
  std::error_code unknown;
  const auto path = std::filesystem::read_symlink("/proc/self/exe", unknown);
  if (!unknown) return path.string();
  // Without /proc, as in a chroot: the path that the kernel executed.
  return reinterpret_cast<const char*>(::getauxval(AT_EXECFN));  // NOLINT(performance-no-int-to-ptr)
}

StartOutcome supervise(RankChannels& channels, SignalInbox& signals, const LaunchPlan& plan, const RankStarter& start) {
  return Supervisor(channels, signals, plan, start).run();
}

}  // namespace chimera
