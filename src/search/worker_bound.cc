#include "search/worker_bound.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

namespace chimera {

double WorkerBound::of_work(std::vector<OpWindow>& jobs) {
  // Ties broken, so that every standard library takes the same one.
  const auto shorter = [](const OpWindow& a, const OpWindow& b) {
    return std::tie(a.tail, a.duration, a.head) < std::tie(b.tail, b.duration, b.head);
  };
  std::stable_sort(jobs.begin(), jobs.end(), [](const OpWindow& a, const OpWindow& b) { return a.head < b.head; });
  waiting_.clear();
  double time = 0;
  double bound = 0;
  for (std::size_t next = 0; next < jobs.size() || !waiting_.empty();) {
    if (waiting_.empty()) time = std::max(time, jobs[next].head);
    for (; next < jobs.size() && jobs[next].head <= time; ++next) {
      waiting_.push_back(jobs[next]);
      std::push_heap(waiting_.begin(), waiting_.end(), shorter);
    }
    std::pop_heap(waiting_.begin(), waiting_.end(), shorter);
    OpWindow job = waiting_.back();
    waiting_.pop_back();
    if (next == jobs.size() || time + job.duration <= jobs[next].head) {
      time += job.duration;
      bound = std::max(bound, time + job.tail);
      continue;
    }
    job.duration -= jobs[next].head - time;
    time = jobs[next].head;
    waiting_.push_back(job);
    std::push_heap(waiting_.begin(), waiting_.end(), shorter);
  }
  return bound;
}

double WorkerBound::of_room(std::vector<OpWindow>& jobs, std::int64_t room) {
  std::stable_sort(jobs.begin(), jobs.end(), [](const OpWindow& a, const OpWindow& b) { return a.head < b.head; });
  find_turns(jobs, room);
  if (turns_.empty() || turns_.back() <= 0) return 0;
  by_duration_.clear();
  tails_.clear();
  for (const OpWindow& job : jobs) {
    tails_.push_back(job.tail);
    if (job.takes) by_duration_.push_back(job);
  }
  std::stable_sort(by_duration_.begin(), by_duration_.end(),
                   [](const OpWindow& a, const OpWindow& b) { return a.duration > b.duration; });
  std::sort(tails_.begin(), tails_.end());
  tails_.erase(std::unique(tails_.begin(), tails_.end()), tails_.end());
  double bound = 0;
  for (const double tail : tails_) bound = std::max(bound, end_of_work(jobs, tail) + tail);
  return bound;
}

double WorkerBound::of_room_backwards(std::vector<OpWindow>& jobs, std::int64_t room) {
  for (OpWindow& job : jobs) {
    std::swap(job.head, job.tail);
    std::swap(job.takes, job.releases);
  }
  return of_room(jobs, room);
}

/// The i-th taker to start, from 0, waits for the end of i + 1 - room releasers. Requires jobs by their heads.
void WorkerBound::find_turns(const std::vector<OpWindow>& jobs, std::int64_t room) {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double shortest = kNever;
  std::size_t takers = 0;
  ends_.clear();
  for (const OpWindow& job : jobs) {
    takers += job.takes ? 1 : 0;
    if (!job.releases) continue;
    shortest = std::min(shortest, job.duration);
    ends_.push_back(job.head + job.duration);
  }
  std::sort(ends_.begin(), ends_.end());
  for (std::size_t i = 1; i < ends_.size(); ++i) ends_[i] = std::max(ends_[i], ends_[i - 1] + shortest);
  turns_.clear();
  for (std::size_t i = 0; i < takers; ++i) {
    const std::int64_t needed = static_cast<std::int64_t>(i) + 1 - room;
    turns_.push_back(needed > 0 ? ends_[static_cast<std::size_t>(needed) - 1] : 0);
  }
}

/// When the jobs whose tails are no less are done, with each taker not before its turn.
double WorkerBound::end_of_work(const std::vector<OpWindow>& jobs, double least_tail) {
  const auto counts = [least_tail](const OpWindow& job) { return job.tail >= least_tail; };
  auto other = jobs.begin();  // the next that is no taker
  auto longest = by_duration_.begin();
  std::size_t turn = 0;
  double time = 0;
  const auto run_others_until = [&](double start) {
    for (; other != jobs.end() && other->head <= start; ++other) {
      if (!other->takes && counts(*other)) time = std::max(time, other->head) + other->duration;
    }
  };
  for (const OpWindow& taker : jobs) {
    if (!taker.takes || !counts(taker)) continue;
    const double start = std::max(taker.head, turns_[turn++]);
    run_others_until(start);
    while (!counts(*longest)) ++longest;
    time = std::max(time, start) + longest->duration;
    ++longest;
  }
  run_others_until(std::numeric_limits<double>::infinity());
  return time;
}

}  // namespace chimera
