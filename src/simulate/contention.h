#pragma once
// What ops, messages and sums of gradients cost each other, or save, where they run beside each other on one worker.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/ids.h"

namespace chimera {

/// Shares by which things take longer than alone; 0 each: they do not disturb each other.
struct Contention {
  double ops_by_sums = 0;  // an op (or an update), while its worker takes part in a sum
  double sums_by_ops = 0;  // a sum, while one of its workers runs an op
  /// A message or a sum, for every other one that leaves the same worker, or comes to it; a sum does both on all of its
  /// workers. The worst end decides. 1: they divide the bandwidth of one network interface evenly.
  double transfers = 0;
  /// The part of a sum's time that is saved while all of its workers have launched another one: the transport has begun
  /// that too, and one's bytes travel while the other's are added. In [0, 1).
  double sums_overlap = 0;
  /// In place of `transfers`, a message or a sum between nodes, for every other one that leaves the same node, or comes
  /// to it. 0: it is not known.
  double node_transfers = 0;

  [[nodiscard]] bool any() const {
    return ops_by_sums > 0 || sums_by_ops > 0 || transfers > 0 || sums_overlap > 0 || node_transfers > 0;
  }
  friend bool operator==(const Contention&, const Contention&) = default;
};

/// Throws ConfigError unless it is as its fields say.
void require_valid(const Contention& contention);

/// Where the workers of one of several groups are that all do the same at the same time. Empty: on one node.
struct NodesOfGroup {
  std::vector<std::size_t> node_of = {};  // [worker]
  std::vector<int> copies = {};           // [worker]: groups whose worker is on the same node, this one included
  std::vector<bool> sums_leave = {};      // [parameter group]: whether its sum is one over several nodes

  [[nodiscard]] std::size_t count() const { return node_of.empty() ? 1 : *std::ranges::max_element(node_of) + 1; }
  [[nodiscard]] std::size_t node(std::size_t worker) const { return node_of.empty() ? 0 : node_of[worker]; }
  [[nodiscard]] int copies_of(std::size_t worker) const { return copies.empty() ? 1 : copies[worker]; }
  /// How many of these copies send at once what they all have to send, where their node has so many cores: those that
  /// take turns on a core are done one after the other.
  [[nodiscard]] int copies_that_send(std::size_t worker, double cores) const {
    const int all = copies_of(worker);
    return cores < all ? std::max(1, static_cast<int>(cores)) : all;
  }
  friend bool operator==(const NodesOfGroup&, const NodesOfGroup&) = default;
};

/// What runs on each worker at the moment, and how much it slows down.
class WorkersInUse {
 public:
  /// `cores`: of each node.
  WorkersInUse(const Contention& contention, std::size_t workers, const NodesOfGroup& nodes, double cores)
      : contention_(contention), nodes_(nodes), cores_(cores), in_use_(workers), of_nodes_(workers) {}

  void count_op(std::size_t worker, int change) { in_use_[worker].ops += change; }
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
      if (std::ranges::any_of(workers.first(i), on_it)) continue;  // a node has its part of the sum once
      of_nodes_[node].leaving += change;
      of_nodes_[node].coming += change;
    }
  }
  /// A sum of which this worker alone is modelled.
  void count_own_sum(std::size_t worker, std::size_t group, int change) {
    count_sum(std::array{WorkerId(static_cast<std::int64_t>(worker))}, group, change);
  }

  /// How many times as long as alone an op on that worker takes, a message, a sum on one of its workers.
  [[nodiscard]] double op(std::size_t worker) const {
    return in_use_[worker].sums > 0 ? 1 + contention_.ops_by_sums : 1;
  }
  [[nodiscard]] double message(std::size_t from, std::size_t to) const {
    if (leaves_node(from, to)) {
      const int most = std::max(of_nodes_[nodes_.node_of[from]].leaving, of_nodes_[nodes_.node_of[to]].coming);
      return beside(most, contention_.node_transfers);
    }
    return beside(std::max(in_use_[from].leaving, in_use_[to].coming), contention_.transfers);
  }
  /// The same of these workers' sum.
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
  /// By what that of a sum is multiplied while the next one is under way too.
  [[nodiscard]] double beside_next_sum() const { return 1 - contention_.sums_overlap; }

 private:
  struct InUse {
    int ops = 0;
    int sums = 0;
    int leaving = 0;  // messages and sums
    int coming = 0;
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
  const NodesOfGroup& nodes_;
  double cores_;
  std::vector<InUse> in_use_;    // [worker]
  std::vector<InUse> of_nodes_;  // [node]: what leaves it and comes to it, ops and sums apart
};

}  // namespace chimera
