#include "search/evaluator.h"

#include <algorithm>
#include <numeric>

namespace chimera {

Evaluator::Evaluator(const Instance& instance)
    : instance_(instance),
      end_(static_cast<std::size_t>(instance.ops)),
      done_(instance.lanes.size()),
      waiting_(instance.lanes.size()),
      position_(static_cast<std::size_t>(instance.workers)),
      free_(static_cast<std::size_t>(instance.workers)) {}

double Evaluator::makespan(const Orders& orders) {
  std::fill(done_.begin(), done_.end(), 0);
  std::fill(waiting_.begin(), waiting_.end(), kNobody);
  std::fill(position_.begin(), position_.end(), 0);
  std::fill(free_.begin(), free_.end(), 0);
  runnable_.resize(orders.size());
  std::iota(runnable_.begin(), runnable_.end(), 0);
  while (!runnable_.empty()) {
    const std::size_t worker = runnable_.back();
    runnable_.pop_back();
    run(worker, orders[worker]);
  }
  for (std::size_t w = 0; w < orders.size(); ++w) {
    if (position_[w] != orders[w].size()) return kStuck;
  }
  return *std::max_element(free_.begin(), free_.end());
}

void Evaluator::run(std::size_t worker, const std::vector<LaneIndex>& order) {
  std::size_t position = position_[worker];
  double time = free_[worker];
  for (; position < order.size(); ++position) {
    const auto index = static_cast<std::size_t>(order[position]);
    const Lane& lane = instance_.lanes[index];
    const std::int32_t k = done_[index];
    if (lane.input != kNoLane) {
      const auto input = static_cast<std::size_t>(lane.input);
      if (done_[input] <= k) {
        waiting_[input] = static_cast<std::int32_t>(worker);
        break;
      }
      const std::int32_t needed = instance_.lanes[input].first + k;
      time = std::max(time, end_[static_cast<std::size_t>(needed)] + lane.delay);
    }
    time += lane.duration;
    end_[static_cast<std::size_t>(lane.first + k)] = time;
    done_[index] = k + 1;
    if (waiting_[index] != kNobody) {
      runnable_.push_back(static_cast<std::size_t>(waiting_[index]));
      waiting_[index] = kNobody;
    }
  }
  position_[worker] = position;
  free_[worker] = time;
}

double Evaluator::mean_end() const {
  return std::accumulate(free_.begin(), free_.end(), 0.0) / static_cast<double>(free_.size());
}

}  // namespace chimera
