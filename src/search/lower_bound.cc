#include "search/lower_bound.h"

#include <algorithm>

#include "search/lanes.h"

namespace chimera {
LowerBound::LowerBound(const Instance& instance)
    : instance_(instance),
      lanes_(lanes_in_order(instance)),
      head_(static_cast<std::size_t>(instance.ops)),
      tail_(head_.size(), 0),
      jobs_(static_cast<std::size_t>(instance.workers)) {
  for (std::size_t chain = 0; chain < instance.replica.size(); ++chain) {
    most_alone_.push_back(most_in_flight_alone(instance, chain));
  }
  for (std::size_t w = 0; w < jobs_.size(); ++w) room_.push_back(most_in_flight(instance, w));
  find_tails();
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
      jobs_[static_cast<std::size_t>(lane.worker)].push_back(
          {head_[op], lane.duration, tail_[op], lane.takes, lane.releases});
    }
  }
  for (std::size_t w = 0; w < jobs_.size(); ++w) {
    bound = std::max({bound, worker_bound_.of_work(jobs_[w]), of_room(w, done)});
  }
  return bound;
}

/// What room for so many micro-batches in flight adds, where there are more.
double LowerBound::of_room(std::size_t worker, const std::vector<std::int32_t>& done) {
  std::int64_t left = room_[worker];
  std::int64_t takers = 0;
  for (const std::int32_t index : instance_.chains[worker]) {
    const auto chain = static_cast<std::size_t>(index);
    const std::size_t forward = kLanesOfChain * chain;
    const std::size_t release = forward + (instance_.split_backward ? kWeightStep : kInputStep);
    takers += instance_.lanes[forward].count - done[forward];
    left -= done[forward] - done[release];
  }
  if (takers <= left) return 0;
  auto& jobs = jobs_[worker];
  const double onward = worker_bound_.of_room(jobs, left);
  return std::max(onward, worker_bound_.of_room_backwards(jobs, room_[worker]));
}

}  // namespace chimera
