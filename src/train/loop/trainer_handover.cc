#include "train/loop/trainer_handover.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <exception>
#include <utility>
#include <vector>

#include "core/clock.h"
#include "core/console.h"
#include "launch/local/rank.h"
#include "train/observe/measured_step.h"
#include "train/observe/own_flight.h"
#include "train/recover/final_error.h"
#include "train/setup/connection.h"
#include "train/setup/device.h"

// run() is a loop over generations: join the ranks that are left, or their replacements; continue; and come back here
// when a peer is lost. An error of this rank is first shown to the launcher, which knows whether the loss of another
// rank has caused it. A generation with fewer ranks has a job and programs of its own, so its trainer is made anew
// around the weights that the old one has kept.

namespace chimera {
namespace {

/// Limits the delay if another rank is lost during reconnection. Communicators of GPUs take seconds each.
std::chrono::milliseconds rejoining_patience(const TrainOptions& options) {
  return uses_gpu(options) ? std::chrono::minutes(2) : std::chrono::seconds(10);
}

std::vector<RankId> ranks_of(const RankSet& set) {
  std::vector<RankId> ranks;
  for (std::size_t rank = 0; rank < set.size(); ++rank) {
    if (set.test(rank)) ranks.emplace_back(static_cast<std::int64_t>(rank));
  }
  return ranks;
}

}  // namespace

RunSummary TrainerHandover::run(const Calls& calls) {
  while (true) {
    try {
      join(calls);
      begin(calls);
      RunSummary summary = train(calls);
      is_saved_ = trainer_->finish_checkpoints();  // A rank that is lost meanwhile is replaced
      return summary;
      // All ranks end with these two, so none is left to continue with.
    } catch (const FinalError&) {
      throw;
    } catch (const PeerFinalError&) {
      throw;
    } catch (const std::exception& error) {
      // A second loss before the run continues belongs to the same interruption, which began with the first one.
      if (left_at_ == 0) left_at_ = monotonic_seconds();
      if (!reconnecting_.must_leave(error, trainer_ ? trainer_->current() : "start-up")) throw;
    }
    if (trainer_) trainer_->drop_step();
    reconnecting_.leave();
  }
}

RunSummary TrainerHandover::train(const Calls& calls) {
  const auto on_step = [&](const StepMetrics& step) {
    costs_.note_step(step.step, step.step_seconds);
    calls.on_step(step);
  };
  const std::int64_t first = trainer_->position().done() + 1;
  // After a loss, one step shows which copies would balance the work; then the order is adapted as in other runs.
  bool balances = rerouted_ != nullptr;
  while (true) {
    // Tables are complete after each multiple of kSteps, on all ranks alike, so all ranks leave run() together.
    const std::int64_t next = SharedTimes::kSteps * (trainer_->position().done() / SharedTimes::kSteps + 1);
    std::optional<std::int64_t> until;
    if (times_) until = search_ ? search_->end : next;
    if (balances) until = first;
    if (until >= launched_.options.updates.steps) until.reset();
    RunSummary summary = trainer_->run(on_step, until);
    if (!until || trainer_->position().done() != *until) return summary;  // Ended, or stopped by a signal
    if (std::exchange(balances, false)) {
      balance(calls);
    } else {
      adapt(calls);
    }
  }
}

void TrainerHandover::adapt(const Calls& calls) {
  if (search_) {
    // All ranks search with equal input and take the result after the same step, whichever of them was done first.
    auto [found, job] = search_->found.get();
    search_.reset();
    if (!job) return;
    if (trainer_->rank() == RankId(0))
      messages().write(fmt::format("chimera: step {}: {}\n", trainer_->position().done() + 1, found.text));
    return exchange(std::move(found.change), std::move(job), calls);
  }
  auto task = adaptation_.consider(*times_, change_);
  if (!task) return;
  // The search runs beside these steps, so that it rarely delays one.
  constexpr std::int64_t kStepsOfSearch = 5;
  search_.emplace(Search{trainer_->position().done() + kStepsOfSearch,
                         std::async(std::launch::async, [this, task = *std::move(task)] {
                           std::pair<AdaptedRun, std::unique_ptr<const Job>> result;
                           auto found = adapted_run(task);
                           if (!found) return result;
                           result.first = *std::move(found);
                           auto job = std::make_unique<Job>(rerouted_job(launched_, result.first.change));
                           if (fits_memory(*job)) result.second = std::move(job);
                           return result;
                         })});
}

void TrainerHandover::exchange(RunChange change, std::unique_ptr<const Job> job, const Calls& calls) {
  // As after a loss, but every rank is here: the weights stay where they are, and no step is lost.
  left_at_ = monotonic_seconds();
  trainer_->drop_step();
  change_job(std::move(change), std::move(job));
  reconnecting_.reset();
  connect();
  begin(calls);
}

void TrainerHandover::join(const Calls& calls) {
  const JoinedGeneration& next = reconnecting_.await_generation();
  RunChange change{.lost = ranks_of(next.absent), .extra_copies = next.extra_copies};
  // If a replacement has come for each lost rank, the trainer lives on with its job.
  adaptation_.forget();
  search_.reset();
  if (change != change_) {
    change_job(std::move(change));
    calls.on_change();
  }
  connect();
}

void TrainerHandover::begin(const Calls& calls) {
  const auto copies = rerouted_ ? extra_copies(*rerouted_) : std::vector<GroupHolder>{};
  const double pause = left_at_ > 0 ? monotonic_seconds() - left_at_ : 0;
  costs_.begin({.lost = change_.lost, .extra_copies = copies, .factors = change_.factors},
               trainer_->position().done() + 1, pause);
  left_at_ = 0;
  if (times_) {
    times_->forget();
    times_->note_change(pause);
    trainer_->share_times(*times_);
  }
  calls.on_begin();
}

void TrainerHandover::balance(const Calls& calls) {
  RunChange change = agree_on_copies();
  if (change != change_) exchange(std::move(change), nullptr, calls);
}

RunChange TrainerHandover::agree_on_copies() {
  // The number of copies, then a rank and a group for each. Other ranks add zeros, so that the sum is a broadcast.
  std::array<double, 1 + 2 * kMaxExtraCopies> numbers{};
  if (trainer_->rank() == RankId(0)) {
    const RunChange change = balanced(launched_, change_);
    auto number = numbers.begin();
    *number++ = static_cast<double>(change.extra_copies.size());
    for (const auto& [rank, group] : change.extra_copies) {
      *number++ = static_cast<double>(rank.value());
      *number++ = static_cast<double>(group.value());
    }
  }
  reconnecting_.all_sum(numbers);
  RunChange change{.lost = change_.lost};
  for (std::size_t i = 1; std::ssize(change.extra_copies) < static_cast<std::int64_t>(numbers.front()); i += 2) {
    change.extra_copies.push_back({RankId(static_cast<std::int64_t>(numbers.at(i))),
                                   ParameterGroupId(static_cast<std::int64_t>(numbers.at(i + 1)))});
  }
  return change;
}

void TrainerHandover::connect() {
  const auto& job = this->job();
  const auto& launched = job.launched_ranks;
  // A rerouted job numbers its ranks without gaps: its rank r is the launched rank launched[r].
  const RankId rank(launched.empty() ? rank_.value() : std::ranges::find(launched, rank_) - launched.begin());
  reconnecting_.join([&](const RendezvousPoint& rendezvous, const std::shared_ptr<ConnectionBreaker>& breaker,
                         bool is_first) {
    Fingerprint compared = fingerprint_;
    // Replacements have no checkpoint.
    if (!is_first) std::erase_if(compared, [](const auto& part) { return part.name == kResumeFlag; });
    return open_transport(job, {.rank = rank,
                                .rendezvous = rendezvous,
                                .compared = std::move(compared),
                                .start_up_timeout = is_first ? kGlooDefaultTimeout : rejoining_patience(job.options),
                                .breaker = breaker});
  });
  // The trainer's weights are those that this process has kept, or of a file or seed, or, in a replacement, not there
  // yet: rejoin() then brings them from another rank.
  const bool is_exchange = !trainer_ && kept_;
  if (is_exchange) {
    trainer_.emplace(job, rank, reconnecting_, WeightOrigin::Own, &*kept_);
  } else if (!trainer_) {
    note_progress({RankProgress::Phase::StartUp});
    trainer_.emplace(job, rank, reconnecting_,
                     reconnecting_.is_recovering() ? WeightOrigin::Replacement : WeightOrigin::Own);
  }
  kept_.reset();
  if (!is_exchange && !reconnecting_.is_recovering()) return;
  trainer_->rejoin();
  note_progress({RankProgress::Phase::Steps, trainer_->position().done() + 1});
  if (!reconnecting_.is_recovering()) return;
  std::vector<std::int64_t> groups;
  for (const auto& [holder, group] : extra_copies(job)) {
    if (holder == rank_) groups.push_back(group.value());
  }
  reconnecting_.note_resumed(trainer_->position().done(), std::move(groups));
}

void TrainerHandover::change_job(RunChange change, std::unique_ptr<const Job> job) {
  // The trainer refers to the job, so it ends first. What it has kept shares the weights, which so exist only once.
  if (trainer_) kept_ = trainer_->keep();
  trainer_.reset();
  rerouted_.reset();
  if (change != RunChange{})
    rerouted_ = job ? std::move(job) : std::make_unique<const Job>(rerouted_job(launched_, change));
  change_ = std::move(change);
  // The flight record holds the programs, which have changed. The first rank that is left writes them for all.
  if (this->job().launched_rank(RankId(0)) == rank_)
    rewrite_flight_job(launched_.options.flight_folder(), flight_job(this->job(), launched_.options.planned));
}

}  // namespace chimera
