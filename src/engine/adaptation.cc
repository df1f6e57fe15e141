#include "engine/adaptation.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <utility>

#include "core/mapped.h"
#include "search/follow.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

// A change must be larger than what a busy host does to the times of a healthy rank.
constexpr double kNoise = 1.15;
constexpr double kLeastGain = 0.05;  // Of a step
constexpr double kStepsToPay = 50;
constexpr double kLeastDelay = 2e-3;  // Seconds
constexpr double kUsualChange = 0.3;  // Seconds, before the first one is measured

// Of two holders, the lower median is the faster one: it is taken for healthy.
double lower_median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[(values.size() - 1) / 2];
}

bool differs(double one, double two) { return std::max(one, two) >= kNoise * std::min(one, two); }

bool is_lost(const RunChange& change, std::size_t rank) {
  return std::ranges::find(change.lost, RankId(static_cast<std::int64_t>(rank))) != change.lost.end();
}

/// Returns [rank]: how many times as long its ops take as those of the other holders of its stages, at least 1. A
/// healthy holder is the median; of two holders, the faster one.
std::vector<double> measured_factors(SharedTimes& table, std::size_t ranks, std::size_t stages) {
  std::vector<double> own(ranks, 0);
  std::vector<double> healthy(ranks, 0);
  for (std::size_t s = 0; s < stages; ++s) {
    for (std::size_t kind = 0; kind <= SharedTimes::kRecomputation; ++kind) {
      std::vector<double> times;
      for (std::size_t rank = 0; rank < ranks; ++rank)
        if (table.op(rank, s, kind) > 0) times.push_back(table.op(rank, s, kind));
      // Without a second holder there is nothing to compare with: the stage may just be larger.
      if (times.size() < 2) continue;
      const double median = lower_median(times);
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (table.op(rank, s, kind) == 0) continue;
        own[rank] += table.op(rank, s, kind);
        healthy[rank] += median;
      }
    }
  }
  // Factors are relative, and a rank that is faster than the median must not make the others look slow.
  for (std::size_t rank = 0; rank < ranks; ++rank)
    own[rank] = healthy[rank] > 0 ? std::max(own[rank] / healthy[rank], 1.0) : 1;
  return own;
}

/// Returns the mean time of a forward.
double forward_of(SharedTimes& table, std::size_t ranks, std::size_t stages) {
  double sum = 0;
  double count = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    for (std::size_t s = 0; s < stages; ++s) {
      const double forward = table.op(rank, s, static_cast<std::size_t>(OpKind::Forward));
      sum += forward;
      if (forward > 0) ++count;
    }
  }
  return count > 0 ? sum / count : 0;
}

/// Appends [rank][rank]: the delay of messages between two ranks, for the lower rank first; `used` are the speeds in
/// use. A link has equal delays in both directions, so their mean needs no common clock of the two hosts.
void add_delays(SharedTimes& table, std::size_t ranks, const std::vector<double>& used, std::vector<double>& speeds) {
  for (std::size_t low = 0; low < ranks; ++low) {
    for (std::size_t high = 0; high < ranks; ++high) {
      double delay = used[speeds.size()];
      const auto mean = [&](bool is_waited) {
        const double up = table.link(high, low, is_waited);
        const double down = table.link(low, high, is_waited);
        return up == 0 || down == 0 ? std::optional<double>() : std::max(0.0, (up + down) / 2);
      };
      // A message that was there before its receiver waited shows only that the link is not slower.
      if (low < high) delay = mean(true).value_or(std::min(delay, mean(false).value_or(delay)));
      speeds.push_back(delay);
    }
  }
}

/// Returns the mean time over ranks, each divided by its factor, of a full micro-batch.
CostModel costs_of(SharedTimes& table, const RunShape& launched, const std::vector<double>& factors,
                   const std::vector<LinkDelay>& delays) {
  CostModel costs;
  bool recomputes = false;
  for (std::size_t s = 0; s < static_cast<std::size_t>(launched.schedule.stages); ++s) {
    std::vector<double> means;
    for (std::size_t kind = 0; kind <= SharedTimes::kRecomputation; ++kind) {
      double sum = 0;
      double holders = 0;
      for (std::size_t rank = 0; rank < factors.size(); ++rank) {
        if (table.op(rank, s, kind) == 0) continue;
        sum += table.op(rank, s, kind) / factors[rank];
        ++holders;
      }
      // Halved micro-batches were timed, while costs are of full ones (CostTable scales them again).
      means.push_back(sum / std::max(holders, 1.0) / launched.schedule.micro_batch_scale);
    }
    StageCosts& stage = costs.stages.emplace_back();
    for (std::size_t kind = 0; kind < kOpKinds; ++kind) stage.*kStageTimes[kind] = means[kind];
    costs.recompute.push_back(means.back());
    recomputes = recomputes || means.back() > 0;
  }
  // An empty list is not a list of zeros: it also says that stages keep all activations.
  if (!recomputes) costs.recompute.clear();
  costs.workers.resize(factors.size());
  for (std::size_t rank = 0; rank < factors.size(); ++rank)
    costs.workers[worker_number(launched.ranks, RankId(static_cast<std::int64_t>(rank)))] = factors[rank];
  if (delays.empty()) return costs;
  auto& alphas = costs.links.emplace().matrix.emplace().alphas;
  alphas.assign(factors.size(), std::vector<double>(factors.size(), 0));
  for (const auto& [one, other, seconds] : delays) {
    const std::size_t from = worker_number(launched.ranks, one);
    const std::size_t to = worker_number(launched.ranks, other);
    alphas[from][to] = alphas[to][from] = seconds;
  }
  return costs;
}

/// Returns [rank]: the number of micro-batches that it runs, over all its stages.
std::vector<std::int64_t> forwards_of(const Schedule& schedule, const RankLayout& ranks) {
  std::vector<std::int64_t> counts;
  for (RankId rank(0); rank.value() < ranks.num_ranks(); rank = RankId(rank.value() + 1)) {
    const auto& ops = schedule.workers[worker_number(ranks, rank)];
    counts.push_back(std::ranges::count(ops, OpKind::Forward, &Op::kind) / schedule.slices);
  }
  return counts;
}

std::string describe(const AdaptationTask& task, const Schedule& healthy, const Schedule& schedule) {
  std::vector<std::string> clauses;
  const auto before = forwards_of(healthy, task.launched.ranks);
  const auto now = forwards_of(schedule, task.launched.ranks);
  std::vector<std::size_t> takers;
  for (std::size_t rank = 0; rank < now.size(); ++rank)
    if (now[rank] > before[rank]) takers.push_back(rank);
  for (const auto& [one, other, seconds] : task.delays)
    clauses.push_back(
        fmt::format("messages between ranks {} and {} take {:.2g} s", one.value(), other.value(), seconds));
  if (task.delays.empty() && !task.now.delays.empty()) clauses.emplace_back("links are as fast as before");
  for (std::size_t rank = 0; rank < now.size(); ++rank) {
    if (task.factors[rank] == 1) {
      if (!task.now.factors.empty() && task.now.factors[rank] > 1)
        clauses.push_back(fmt::format("rank {} is as fast as the others again", rank));
      continue;
    }
    std::string clause = fmt::format("rank {} takes {:.1f} times as long", rank, task.factors[rank]);
    if (now[rank] < before[rank]) {
      clause += fmt::format("; {} of its {} micro-batches go to rank{} {}", before[rank] - now[rank], before[rank],
                            takers.size() == 1 ? "" : "s", fmt::join(takers, ", "));
    }
    clauses.push_back(std::move(clause));
  }
  return clauses.empty() ? "the ranks are equally fast" : fmt::format("{}", fmt::join(clauses, "; "));
}

}  // namespace

SharedTimes::SharedTimes(std::int64_t ranks, std::int64_t stages)
    : stages_(static_cast<std::size_t>(stages)),
      row_(stages_ * (kRecomputation + 1) + 2 * static_cast<std::size_t>(ranks) + 2),
      table_(static_cast<std::size_t>(ranks) * row_, 0) {
  forget();
}

double& SharedTimes::op(std::size_t rank, std::size_t stage, std::size_t kind) {
  return table_[rank * row_ + stage * (kRecomputation + 1) + kind];
}

void SharedTimes::forget() {
  // The executor's sums start at zero again after a change, and so does what was subtracted from them.
  total_ = OpTimes(static_cast<std::int64_t>(stages_)).numbers();
  steps_.clear();
}

void SharedTimes::note_step(const OpTimes& total, double seconds, const TransitTimes& links) {
  std::vector<double> step;
  const std::vector<double>& sums = total.numbers();
  // The executor adds up over all steps; the difference to the step before is this step.
  for (std::size_t i = 0; i < sums.size(); i += 3) {  // Wall seconds, CPU seconds, ops
    const double ops = sums[i + 2] - total_[i + 2];
    step.push_back(ops > 0 ? (sums[i] - total_[i]) / ops : 0);
  }
  step.resize(row_ - 1, 0);
  for (const auto& [sender, time] : links) {
    double* const medians = &step[row_ - 2 - 2 * (sender.index() + 1)];
    medians[0] = time.waited.value_or(0);
    medians[1] = time.bound.value_or(0);
  }
  step.back() = seconds;
  total_ = sums;
  steps_.push_back(std::move(step));
  if (std::ssize(steps_) > kSteps) steps_.pop_front();
}

std::span<double> SharedTimes::numbers_of(std::int64_t step, RankId rank) {
  // An empty span adds nothing to the sum, so all other steps cost nothing.
  if (step % kSteps != 0) return {};
  // Every rank fills its own row and leaves the others 0: the sum over ranks is then the whole table.
  std::ranges::fill(table_, 0);
  constexpr std::int64_t kFewest = 4;
  if (std::ssize(steps_) >= kFewest) {
    double* const own = &table_[rank.index() * row_];
    for (std::size_t i = 0; i + 1 < row_; ++i)
      own[i] = lower_median(mapped(steps_, [i](const auto& each) { return each[i]; }));
  }
  change(rank.index()) = change_seconds_;
  return table_;
}

std::optional<AdaptationTask> Adaptation::consider(SharedTimes& table, const RunChange& now) {
  const auto ranks = static_cast<std::size_t>(launched_.num_ranks());
  double step_seconds = 0;
  double change_seconds = 0;
  for (std::size_t rank = 0; rank < ranks; ++rank) {
    // A rank that has just come back has too few steps. All ranks see this, and all wait.
    if (table.step(rank) == 0 && !is_lost(now, rank)) {
      previous_.clear();
      return std::nullopt;
    }
    step_seconds = std::max(step_seconds, table.step(rank));
    change_seconds = std::max(change_seconds, table.change(rank));
  }
  const auto stages = static_cast<std::size_t>(launched_.schedule.stages);
  std::vector<double> used = now.factors.empty() ? std::vector<double>(ranks, 1) : now.factors;
  used.resize(ranks + ranks * ranks, 0);
  for (const auto& [one, other, seconds] : now.delays) used[ranks + one.index() * ranks + other.index()] = seconds;
  auto measured = measured_factors(table, ranks, stages);
  add_delays(table, ranks, used, measured);
  const double forward = forward_of(table, ranks, stages);
  const auto differ = [&](std::size_t i, double one, double two) {
    if (i < ranks) return differs(one, two);
    return differs(one, two) && std::abs(one - two) >= std::max(forward / 2, kLeastDelay);
  };
  const auto previous = std::exchange(previous_, measured);
  // One table may show a passing disturbance; a change needs two tables that agree.
  if (previous.empty()) return std::nullopt;
  // A resumed run does not know the speeds that its order is for.
  bool is_new = considered_.empty() && now.schedule && now.factors.empty() && now.delays.empty();
  if (considered_.empty()) considered_ = used;
  std::vector<double> speeds = used;
  for (std::size_t i = 0; i < speeds.size(); ++i) {
    // Not settled: the rank or link keeps the speed in use.
    if (differ(i, previous[i], measured[i])) continue;
    const double healthy = i < ranks ? 1 : 0;
    const double speed = std::sqrt(previous[i] * measured[i]);
    if (!differ(i, speed, used[i])) continue;
    // Close to healthy counts as healed, so that the order returns to the launched one.
    speeds[i] = differ(i, speed, healthy) ? speed : healthy;
  }
  for (std::size_t i = 0; i < speeds.size(); ++i) is_new = is_new || differ(i, speeds[i], considered_[i]);
  // Speeds that were considered and found not worth a change are not searched again.
  if (!is_new) return std::nullopt;
  considered_ = speeds;
  std::vector<LinkDelay> delays;
  for (std::size_t i = ranks; i < speeds.size(); ++i) {
    const auto rank_of = [](std::size_t rank) { return RankId(static_cast<std::int64_t>(rank)); };
    if (speeds[i] > 0) delays.push_back({rank_of((i - ranks) / ranks), rank_of((i - ranks) % ranks), speeds[i]});
  }
  speeds.resize(ranks);
  AdaptationTask task{.launched = launched_,
                      .block_size = block_size_,
                      .now = now,
                      .factors = speeds,
                      .delays = delays,
                      .costs = costs_of(table, launched_, speeds, delays),
                      .step_seconds = step_seconds,
                      .change_seconds = change_seconds > 0 ? change_seconds : kUsualChange};
  task.costs.slices = slices_;
  return task;
}

std::optional<AdaptedRun> adapted_run(const AdaptationTask& task, double room) {
  constexpr std::int64_t kEffort = 4'000'000;
  const Schedule current = rerouted_schedule(task.launched, task.now, task.block_size);
  AdaptedRun result{.change = task.now, .text = {}};
  RunChange& change = result.change;
  change.schedule = nullptr;
  change.factors.clear();
  change.delays = task.delays;
  const bool has_slow = std::ranges::max(task.factors) > 1;
  if (has_slow) change.factors = task.factors;
  if (has_slow || !change.delays.empty()) {
    change.schedule =
        std::make_shared<const Schedule>(follow_costs({.detours = detour_task(task.launched, change, task.block_size),
                                                       .costs = task.costs,
                                                       .effort = kEffort,
                                                       .room = room})
                                             .schedule);
  }
  const Schedule next = rerouted_schedule(task.launched, change, task.block_size);
  // Both orders with the same new costs: one is the step if nothing changes, the other the step after the change.
  const double saved = simulate(current, task.costs).makespan - simulate(next, task.costs).makespan;
  if (saved < kLeastGain * task.step_seconds || saved * kStepsToPay < task.change_seconds) return std::nullopt;
  // The sentence compares with the order of equal ranks, which still has lost ranks and extra copies.
  RunChange healthy;
  healthy.lost = change.lost;
  healthy.extra_copies = change.extra_copies;
  result.text = fmt::format("{}: {:.3g} s a step instead of {:.3g} (predicted)",
                            describe(task, rerouted_schedule(task.launched, healthy, task.block_size), next),
                            task.step_seconds - saved, task.step_seconds);
  return result;
}

}  // namespace chimera
