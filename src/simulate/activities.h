#pragma once
// What computes at the moment, and how fast: the processor-sharing part of shared_cores.h.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

namespace chimera {

inline constexpr double kNever = std::numeric_limits<double>::infinity();

/// What needs cores for a while.
enum class Work : std::uint8_t { Recomputation, Op, Message, Sum, OwnSum, Update };

struct Activity {
  Work kind = Work::Op;
  std::size_t of = 0;  // the worker; of a Message, its op; of a Sum, the parameter group
  double left = 0;     // of its time on free cores, at `since`
  double demand = 1;   // cores that it would use, on each of its workers
  double share = 1;    // part of its time that it computes
  double since = 0;
  double rate = 0;  // 0: not begun
  double finish = kNever;

  void go_on(double now, double new_rate) {
    if (new_rate == rate) return;
    left = std::max(0.0, left - (now - since) * rate);
    since = now;
    rate = new_rate;
    finish = now + left / rate;
  }
};

/// All activities that run, each at the rate that the cores of its nodes leave it.
class Activities {
 public:
  /// `cores`: of each node.
  Activities(double cores, std::size_t nodes) : cores_(cores), demands_(nodes) {}

  void begin(const Activity& activity) { running_.push_back(activity); }

  [[nodiscard]] double next_finish() const {
    double next = kNever;
    for (const Activity& activity : running_) next = std::min(next, activity.finish);
    return next;
  }

  /// Takes out what has finished by `now`.
  [[nodiscard]] std::vector<Activity> finished(double now) {
    const auto done = std::stable_partition(running_.begin(), running_.end(),
                                            [&](const Activity& activity) { return activity.finish > now; });
    std::vector<Activity> result(done, running_.end());
    running_.erase(done, running_.end());
    return result;
  }

  /// Sets all rates, after some have begun or finished. `for_each_node(activity, use)` calls `use(node, cores)` with
  /// what the activity would use; the node that leaves it least decides. `slowdown(activity)`: how many times as long
  /// as alone it takes beside what else runs on its workers.
  template <typename ForEachNode, typename Slowdown>
  void share_out(double now, const ForEachNode& for_each_node, const Slowdown& slowdown) {
    std::ranges::fill(demands_, 0.0);
    for (const Activity& activity : running_) {
      for_each_node(activity, [this](std::size_t node, double cores) { demands_[node] += cores; });
    }
    for (Activity& activity : running_) {
      double rate = 1;
      for_each_node(activity, [&](std::size_t node, double) {
        if (demands_[node] > cores_) rate = std::min(rate, cores_ / demands_[node]);
      });
      const double share = activity.share;
      activity.go_on(now, (rate == 1 || share == 0 ? 1 : 1 / (1 - share + share / rate)) / slowdown(activity));
    }
  }

 private:
  double cores_;
  std::vector<double> demands_;  // [node]
  std::vector<Activity> running_;
};

}  // namespace chimera
