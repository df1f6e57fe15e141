#include "search/lower_bound.h"

#include <algorithm>
#include <cmath>

namespace chimera {
namespace {

constexpr std::int32_t kUnlimited = std::numeric_limits<std::int32_t>::max();

std::int32_t most_in_flight_alone(const Instance& instance, std::size_t chain) {
  const auto worker = static_cast<std::size_t>(instance.lanes[kLanesOfChain * chain].worker);
  double most = kUnlimited;
  for (std::size_t limit = 0; limit < instance.size.size(); ++limit) {
    const double size = instance.size[limit][chain];
    if (size > 0) most = std::min(most, std::floor((instance.room[limit][worker] + kRounding) / size));
  }
  return static_cast<std::int32_t>(std::max(1.0, most));
}

}  // namespace

LowerBound::LowerBound(const Instance& instance)
    : instance_(instance),
      head_(static_cast<std::size_t>(instance.ops)),
      tail_(head_.size(), 0),
      jobs_(static_cast<std::size_t>(instance.workers)) {
  for (std::size_t chain = 0; chain < instance.replica.size(); ++chain) {
    most_alone_.push_back(most_in_flight_alone(instance, chain));
  }
  order_lanes();
  find_tails();
}

/// Forwards from the first stage on, then input gradients from the last one back, then weight gradients.
void LowerBound::order_lanes() {
  const std::size_t chains = instance_.replica.size();
  for (std::size_t c = 0; c < chains; ++c) lanes_.push_back(kLanesOfChain * c + kForwardStep);
  for (std::size_t c = chains; c-- > 0;) lanes_.push_back(kLanesOfChain * c + kInputStep);
  for (std::size_t c = 0; c < chains; ++c) lanes_.push_back(kLanesOfChain * c + kWeightStep);
}

void LowerBound::find_tails() {
  std::int32_t most = 0;
  for (const Lane& lane : instance_.lanes) most = std::max(most, lane.count);
  const auto follow = [this](double& tail, std::size_t index, std::int32_t k, double delay) {
    const Lane& lane = instance_.lanes[index];
    if (k >= lane.count) return;
    tail = std::max(tail, delay + lane.duration + tail_[static_cast<std::size_t>(lane.first + k)]);
  };
  for (std::int32_t k = most; k-- > 0;) {
    for (auto index = lanes_.rbegin(); index != lanes_.rend(); ++index) {
      const Lane& lane = instance_.lanes[*index];
      if (k >= lane.count) continue;
      double tail = 0;
      follow(tail, *index, k + 1, 0);
      if (*index % kLanesOfChain != kWeightStep) follow(tail, *index + 1, k, 0);
      if (lane.output != kNoLane) {
        const auto output = static_cast<std::size_t>(lane.output);
        follow(tail, output, k, instance_.lanes[output].delay);
      }
      const std::int32_t room = most_alone_[*index / kLanesOfChain];
      if (lane.releases && room < lane.count) {
        follow(tail, *index / kLanesOfChain * kLanesOfChain + kForwardStep, k + room, 0);
      }
      tail_[static_cast<std::size_t>(lane.first + k)] = tail;
    }
  }
}

void LowerBound::find_heads(const std::vector<std::int32_t>& done, const std::vector<double>& end,
                            const std::vector<double>& free) {
  std::int32_t most = 0;
  for (const Lane& lane : instance_.lanes) most = std::max(most, lane.count);
  const auto ended = [&](std::size_t index, std::int32_t k) {
    const Lane& lane = instance_.lanes[index];
    const auto op = static_cast<std::size_t>(lane.first + k);
    return k < done[index] ? end[op] : head_[op] + lane.duration;
  };
  const std::size_t release = instance_.split_backward ? kWeightStep : kInputStep;
  for (std::int32_t k = 0; k < most; ++k) {
    for (const std::size_t index : lanes_) {
      const Lane& lane = instance_.lanes[index];
      if (k < done[index] || k >= lane.count) continue;
      double head = free[static_cast<std::size_t>(lane.worker)];
      if (k > 0) head = std::max(head, ended(index, k - 1));
      if (index % kLanesOfChain != kForwardStep) head = std::max(head, ended(index - 1, k));
      if (lane.input != kNoLane) head = std::max(head, ended(static_cast<std::size_t>(lane.input), k) + lane.delay);
      const std::size_t chain = index / kLanesOfChain;
      if (lane.takes && k >= most_alone_[chain]) {
        head = std::max(head, ended(kLanesOfChain * chain + release, k - most_alone_[chain]));
      }
      head_[static_cast<std::size_t>(lane.first + k)] = head;
    }
  }
}

double LowerBound::at_start() {
  return after(std::vector<std::int32_t>(instance_.lanes.size(), 0), {}, std::vector<double>(jobs_.size(), 0));
}

double LowerBound::after(const std::vector<std::int32_t>& done, const std::vector<double>& end,
                         const std::vector<double>& free) {
  find_heads(done, end, free);
  double bound = 0;
  for (const double time : free) bound = std::max(bound, time);
  for (auto& jobs : jobs_) jobs.clear();
  for (std::size_t index = 0; index < instance_.lanes.size(); ++index) {
    const Lane& lane = instance_.lanes[index];
    for (std::int32_t k = done[index]; k < lane.count; ++k) {
      const auto op = static_cast<std::size_t>(lane.first + k);
      bound = std::max(bound, head_[op] + lane.duration + tail_[op]);
      jobs_[static_cast<std::size_t>(lane.worker)].push_back({head_[op], lane.duration, tail_[op]});
    }
  }
  for (auto& jobs : jobs_) bound = std::max(bound, alone(jobs));
  return bound;
}

/// One worker's jobs with interruptions: at any time the one with the longest tail, of those that may run.
double LowerBound::alone(std::vector<Job>& jobs) {
  const auto shorter = [](const Job& a, const Job& b) { return a.tail < b.tail; };
  std::sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) { return a.head < b.head; });
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
    Job job = waiting_.back();
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

}  // namespace chimera
