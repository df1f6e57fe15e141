#pragma once

// Resources that the workers of a data-parallel group share on one or more machines: cores, network interfaces, caches.
// The planner, or the flags of `chimera simulate`, describe them by a SharedCores; by default nothing is shared. The
// simulator then slows down ops, messages and all-reduces that run at the same time (shared_cores.h). All slowdowns are
// relative: 0.5 makes an activity take 1.5 times as long.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace chimera {

/// Relative slowdowns of overlapping ops, messages and all-reduces ("sums"); 0: no effect.
struct Contention {
  double ops_by_sums = 0;  // slowdown of an op or update while its worker takes part in an all-reduce
  double sums_by_ops = 0;  // slowdown of an all-reduce while one of its workers runs an op
  /// Slowdown of a message or all-reduce for each other transfer that leaves (or enters) the same worker at the same
  /// time, at the end with more transfers. An all-reduce both leaves and enters each of its workers. 1: transfers share
  /// the bandwidth evenly.
  double transfers = 0;
  /// Fraction of an all-reduce's time that is saved if all of its workers have already started the next one, because
  /// one sends while the other adds. In [0, 1).
  double sums_overlap = 0;
  /// Like `transfers`, for transfers between nodes that leave (or enter) the same node. 0: unknown.
  double node_transfers = 0;
  /// Slowdown of an op for each input of the worker's next op that has not arrived yet: on GPUs, its receive is posted
  /// while this op runs, and occupies multiprocessors while it waits.
  double ops_by_receives = 0;
  /// An op saves idle_gain * idle_share(ops, cores) of its time while `ops` ops, itself included, run on the node.
  /// Durations in the costs are those while all cores compute. In [0, 1).
  double idle_gain = 0;

  [[nodiscard]] bool any() const {
    return ops_by_sums > 0 || sums_by_ops > 0 || transfers > 0 || sums_overlap > 0 || node_transfers > 0 ||
           ops_by_receives > 0 || idle_gain > 0;
  }
  friend bool operator==(const Contention&, const Contention&) = default;
};

/// The node (host) of each worker of a data-parallel group. All groups are assumed to do the same at the same time, so
/// one group is simulated for all. All members empty: one node.
struct NodePlacement {
  std::vector<std::size_t> node_of = {};  // [worker]
  // [worker]: number of data-parallel groups that have this worker on the same node, including the simulated group
  std::vector<int> copies = {};
  std::vector<bool> sums_leave = {};  // [parameter group]: whether its all-reduce spans nodes

  /// Returns the number of nodes.
  [[nodiscard]] std::size_t count() const { return node_of.empty() ? 1 : *std::ranges::max_element(node_of) + 1; }
  [[nodiscard]] std::size_t node(std::size_t worker) const { return node_of.empty() ? 0 : node_of[worker]; }
  [[nodiscard]] int copies_of(std::size_t worker) const { return copies.empty() ? 1 : copies[worker]; }
  /// Returns how many of these copies send at once on a node with `cores` cores; copies on one core take turns.
  [[nodiscard]] int copies_that_send(std::size_t worker, double cores) const {
    const int all = copies_of(worker);
    return cores < all ? std::max(1, static_cast<int>(cores)) : all;
  }
  friend bool operator==(const NodePlacement&, const NodePlacement&) = default;
};

/// Returns the fraction of `cores` that is idle while `ops` ops run; 0 if `cores` is infinite (their number is
/// unknown).
[[nodiscard]] inline double idle_share(double ops, double cores) {
  return std::isfinite(cores) ? std::max(0.0, 1 - ops / cores) : 0;
}

/// Input of the simulation of workers that share resources.
struct SharedCores {
  /// Number of workers that can compute at the same time on a node: the node's cores divided by the threads of a
  /// worker. An op of a worker counts once for each of NodePlacement::copies. If `nodes` is empty and several
  /// data-parallel groups run on one machine, the value is that of one group: divided by their number. Infinity: each
  /// worker has its own cores.
  double cores = std::numeric_limits<double>::infinity();
  /// Fraction of an all-reduce's time in which its workers compute (add, copy to and from sockets); in the rest they
  /// wait for the network.
  double all_reduce_share = 1;
  /// Relative slowdown of computation while workers need more cores than the node has, because each switch refills the
  /// caches.
  double switching = 0;
  Contention contention = {};
  NodePlacement nodes = {};

  /// Whether activities can slow each other down.
  [[nodiscard]] bool are_shared() const { return std::isfinite(cores) || contention.any(); }
};

}  // namespace chimera
