#include "train/loop/trainer_handover.h"

#include <algorithm>
#include <exception>

#include "core/clock.h"
#include "core/console.h"
#include "core/error.h"
#include "core/fault_point.h"
#include "launch/local/rank.h"
#include "runtime/gather.h"
#include "train/observe/measured_step.h"
#include "train/observe/observation.h"
#include "train/recover/final_error.h"
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
  for (std::size_t rank = 0; rank < set.size(); ++rank)
    if (set.test(rank)) ranks.emplace_back(static_cast<std::int64_t>(rank));
  return ranks;
}

}  // namespace

RunSummary TrainerHandover::run(bool& is_saved, const std::function<void()>& on_whole) {
  while (true) {
    try {
      join();
      begin();
      RunSummary summary = train();
      is_saved = trainer_->finish_checkpoints();  // A rank that is lost meanwhile is replaced
      if (summary.is_whole) on_whole();
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

RunSummary TrainerHandover::train() {
  const auto on_step = [&](const StepMetrics& step) {
    costs_.note_step(step.step, step.step_seconds);
    StepMetrics noted = step;
    if (step.step == order_.first) noted.order = order_.second;
    outputs_.note_step(std::move(noted));
  };
  const std::int64_t first = trainer_->position().done() + 1;
  // After a loss, one step shows which copies would balance the work; then the order is adapted as in other runs.
  bool balances = rerouted_ != nullptr && !change_.schedule;
  while (true) {
    // Tables are complete after each multiple of kSteps, on all ranks alike, so all ranks leave run() together.
    const std::int64_t next = SharedTimes::kSteps * (trainer_->position().done() / SharedTimes::kSteps + 1);
    std::optional<std::int64_t> until;
    if (times_) until = search_ ? search_->end : next;
    if (balances) until = first;
    if (until >= launched_.options.updates.steps) until.reset();
    RunSummary summary = trainer_->run(on_step, until);
    if (!until || trainer_->position().done() != *until) return summary;  // Ended, or stopped by a signal
    if (!std::exchange(balances, false))
      adapt();
    else if (RunChange change = agree_on_copies(); change != change_)
      exchange(std::move(change));
  }
}

void TrainerHandover::adapt() {
  if (search_) {
    // All ranks search with equal input and take the result after the same step, whichever of them was done first.
    auto [found, job] = search_->found.get();
    search_.reset();
    if (!job) return;
    order_ = {trainer_->position().done() + 1, found.text};
    if (trainer_->rank() == RankId(0)) print_message("step {}: {}", order_.first, order_.second);
    return exchange(std::move(found.change), std::move(job));
  }
  auto task = adaptation_.consider(*times_, change_);
  if (!task) return;
  // The search runs beside these steps, so that it rarely delays one.
  constexpr std::int64_t kStepsOfSearch = 5;
  search_.emplace(Search{trainer_->position().done() + kStepsOfSearch,
                         std::async(std::launch::async, [this, task = *std::move(task)] {
                           std::pair<AdaptedRun, std::unique_ptr<const Job>> result;
                           // A slow link hides behind more micro-batches in flight, if there is memory for them.
                           for (const double room : {2.0, 1.25}) {
                             if (room > 1.25 && task.delays.empty()) continue;
                             auto found = adapted_run(task, room);
                             if (!found) continue;
                             result.first = *std::move(found);
                             auto job = std::make_unique<Job>(rerouted_job(launched_, result.first.change));
                             if (!fits_memory(*job, job->options)) continue;
                             result.second = std::move(job);
                             break;
                           }
                           return result;
                         })});
}

void TrainerHandover::exchange(RunChange change, std::unique_ptr<const Job> job) {
  // As after a loss, but every rank is here: the weights stay where they are, and no step is lost.
  left_at_ = monotonic_seconds();
  trainer_->drop_step();
  change_job(std::move(change), std::move(job));
  reconnecting_.reset();
  connect();
  begin();
}

void TrainerHandover::join() {
  const JoinedGeneration& next = reconnecting_.await_generation();
  RunChange change{.lost = ranks_of(next.absent), .extra_copies = next.extra_copies};
  if (!reconnecting_.is_recovering()) change.schedule = launched_.order;
  // If a replacement has come for each lost rank, the trainer lives on with its job.
  adaptation_.forget();
  search_.reset();
  order_ = {};
  if (change != change_) {
    change_job(std::move(change));
    outputs_.close();
  }
  connect();
}

void TrainerHandover::begin() {
  const auto copies = rerouted_ ? extra_copies(*rerouted_) : std::vector<GroupHolder>{};
  const double pause = left_at_ > 0 ? monotonic_seconds() - left_at_ : 0;
  const std::int64_t next = trainer_->position().done() + 1;
  costs_.begin({.lost = change_.lost, .extra_copies = copies, .factors = change_.factors, .delays = change_.delays},
               next, pause, order_.first == next ? order_.second : "");
  left_at_ = 0;
  if (const auto& folder = launched_.options.checkpoint.folder; !folder.empty() && trainer_->rank() == RankId(0)) {
    try {
      save_order(folder, change_);
    } catch (const ConfigError& error) {  // A full disk must not end the run
      print_message("{}", error.what());
    }
  }
  if (times_) {
    times_->forget();
    times_->note_change(pause);
    trainer_->share_times(*times_);
  }
  outputs_.open(*trainer_);
  // A replacement has no earlier steps, and another program has other instructions.
  trainer_->trace(launched_.options.output.observes());
}

RunChange TrainerHandover::agree_on_copies() {
  std::vector<double> own;  // A rank and a group for each copy
  if (trainer_->rank() == RankId(0)) {
    const RunChange change = balanced(launched_, change_);
    for (const auto& [rank, group] : change.extra_copies)
      own.insert(own.end(), {static_cast<double>(rank.value()), static_cast<double>(group.value())});
  }
  const auto numbers = gather(own, trainer_->rank(), job().num_ranks(), reconnecting_).front();
  RunChange change{.lost = change_.lost};
  for (std::size_t i = 0; i < numbers.size(); i += 2) {
    change.extra_copies.push_back(
        {RankId(static_cast<std::int64_t>(numbers[i])), ParameterGroupId(static_cast<std::int64_t>(numbers[i + 1]))});
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
  for (const auto& [holder, group] : extra_copies(job))
    if (holder == rank_) groups.push_back(group.value());
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
  if (this->job().launched_rank(RankId(0)) != rank_) return;
  const std::string folder = launched_.options.flight_folder();
  try_flight(folder, [&] { write_flight_job(folder, flight_job(this->job(), launched_.options.planned)); });
}

// The part of a Trainer in a handover: it leaves the step of the loss, and takes up the step that all ranks agree on.

void Trainer::drop_step() {
  fault_point("leave");
  // A GPU may still be working on ops of the step, whose tensors are about to be dropped.
  await_device(self_.device);
  driver_.executor().drop();
  if (options().recovery.watches_weights()) replicas_.require_unchanged();  // A replacement may receive this state
  replicas_.forget();
  if (checkpointer_) checkpointer_->drop();
}

void Trainer::rejoin() {
  // An example is in train/recover/rank_replacement.h. The order matters: votes first, then the numbers of the loop,
  // then the missing update of ranks that are a step behind, and the state of the model last, because it is copied
  // after that update.
  const ResumeState resume = replacement_.agree(steps_.done());
  LoopState state = loop_state();
  replacement_.share(state, resume.metrics_source);
  last_ = state.last;
  losses_.set_skipped_in_row(state.skipped_in_row);
  if (checkpointer_) checkpointer_->resume(state.plans);
  const bool is_behind = model_.has_weights() && steps_.done() < resume.done;
  if (is_behind && !last_.is_skipped) {
    replicas_.forget();
    driver_.update_alone(model_.optimizer(), resume.done - 1, last_.gradient_norm);
    model_.update_copies();
  }
  // Before other ranks are waited for: another loss must not repeat the update.
  steps_.resume(state.first_step, resume.done);
  replacement_.send_state(resume, last_.updates);
  if (self_.job.has_second_shards) {
    model_.optimizer().share();
    model_.update_copies();
  }
  driver_.executor().connect_sums();
  // New connections of a GPU are made at their first use, which the warm-up does apart from any message.
  is_warm_ = false;
  fault_point("resume");
}

}  // namespace chimera
