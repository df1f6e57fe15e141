#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "core/ids.h"
#include "simulate/contention.h"

// Counts what runs on each worker and each node at the moment, and derives from it by what factor each activity is
// slower than alone. The clock of shared cores reports every begin and end here.

namespace chimera {

class ContentionTracker {
 public:
  /// `cores` is the number of cores of each node.
  ContentionTracker(const Contention& contention, std::size_t workers, const NodePlacement& nodes, double cores)
      : contention_(contention), nodes_(nodes), cores_(cores), in_use_(workers), of_nodes_(workers) {}

  /// Announces a message, whose arrival is then reported by count_arrival().
  void expect_message(std::size_t from, std::size_t to) {
    if (to_arrive_[{from, to}]++ == 0) ++in_use_[to].channels;
  }
  void count_arrival(std::size_t from, std::size_t to) {
    if (--to_arrive_.at({from, to}) == 0) --in_use_[to].channels;
  }
  void count_op(std::size_t worker, int change) {
    in_use_[worker].ops += change;
    of_nodes_[nodes_.node(worker)].ops += nodes_.copies_of(worker) * change;
  }
  void count_message(std::size_t from, std::size_t to, int change) {
    if (leaves_node(from, to)) {
      const int at_once = nodes_.copies_that_send(from, cores_);
      of_nodes_[nodes_.node_of[from]].leaving += at_once * change;
      of_nodes_[nodes_.node_of[to]].coming += std::max(1, nodes_.copies[to] * at_once / nodes_.copies[from]) * change;
      return;
    }
    in_use_[from].leaving += change;
    in_use_[to].coming += change;
  }
  void count_sum(std::span<const WorkerId> workers, std::size_t group, int change) {
    for (const WorkerId worker : workers) {
      InUse& here = in_use_[worker.index()];
      here.sums += change;
      if (leaves_node(group)) continue;
      here.leaving += change;
      here.coming += change;
    }
    if (!leaves_node(group)) return;
    for (std::size_t i = 0; i < workers.size(); ++i) {
      const std::size_t node = nodes_.node_of[workers[i].index()];
      const auto on_it = [&](WorkerId worker) { return nodes_.node_of[worker.index()] == node; };
      if (std::ranges::any_of(workers.first(i), on_it)) continue;  // one transfer per node and all-reduce
      of_nodes_[node].leaving += change;
      of_nodes_[node].coming += change;
    }
  }
  /// Counts an all-reduce that is simulated on this worker only.
  void count_own_sum(std::size_t worker, std::size_t group, int change) {
    count_sum(std::array{WorkerId(static_cast<std::int64_t>(worker))}, group, change);
  }

  /// Slowdown factors: of an op, a message, an all-reduce.
  [[nodiscard]] double op(std::size_t worker) const {
    const InUse& here = in_use_[worker];
    const double slowed =
        1 + (here.sums > 0 ? contention_.ops_by_sums : 0) + contention_.ops_by_receives * here.channels;
    return slowed * (1 - contention_.idle_gain * idle_share(of_nodes_[nodes_.node(worker)].ops, cores_));
  }
  [[nodiscard]] double message(std::size_t from, std::size_t to) const {
    if (leaves_node(from, to)) {
      const int most = std::max(of_nodes_[nodes_.node_of[from]].leaving, of_nodes_[nodes_.node_of[to]].coming);
      return beside(most, contention_.node_transfers);
    }
    return beside(std::max(in_use_[from].leaving, in_use_[to].coming), contention_.transfers);
  }
  [[nodiscard]] double sum(std::span<const WorkerId> workers, std::size_t group) const {
    double slowest = 1;
    const bool leaves = leaves_node(group);
    const double share = leaves ? contention_.node_transfers : contention_.transfers;
    for (const WorkerId worker : workers) {
      const InUse& there = leaves ? of_nodes_[nodes_.node_of[worker.index()]] : in_use_[worker.index()];
      slowest = std::max(slowest, beside(std::max(there.leaving, there.coming), share) + by_ops(worker.index()));
    }
    return slowest;
  }
  [[nodiscard]] double own_sum(std::size_t worker, std::size_t group) const {
    return sum(std::array{WorkerId(static_cast<std::int64_t>(worker))}, group);
  }
  /// Factor on an all-reduce's duration after its workers launched the next.
  [[nodiscard]] double overlap_factor() const { return 1 - contention_.sums_overlap; }

 private:
  struct InUse {
    int ops = 0;
    int sums = 0;
    int leaving = 0;  // messages and all-reduces
    int coming = 0;
    int channels = 0;  // with messages that are still to arrive
  };
  static double beside(int transfers, double share) { return 1 + share * (transfers - 1); }
  [[nodiscard]] double by_ops(std::size_t worker) const {
    return in_use_[worker].ops > 0 ? contention_.sums_by_ops : 0;
  }
  [[nodiscard]] bool knows_nodes() const { return contention_.node_transfers > 0 && !nodes_.node_of.empty(); }
  [[nodiscard]] bool leaves_node(std::size_t from, std::size_t to) const {
    return knows_nodes() && nodes_.node_of[from] != nodes_.node_of[to];
  }
  [[nodiscard]] bool leaves_node(std::size_t group) const { return knows_nodes() && nodes_.sums_leave[group]; }

  Contention contention_;
  const NodePlacement& nodes_;
  double cores_;
  std::vector<InUse> in_use_;                                              // [worker]
  std::vector<InUse> of_nodes_;                                            // [node]: ops, and transfers between nodes
  std::map<std::pair<std::size_t, std::size_t>, std::int64_t> to_arrive_;  // (from, to): messages
};

}  // namespace chimera
