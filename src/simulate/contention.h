#pragma once

// How activities of different workers slow each other down. By default nothing is shared, and every worker advances as
// if it were alone. The planner, or the flags of `chimera simulate`, give the simulator a SharedCores instead, which
// has
//
//   cores        fewer cores on a node than workers that want to compute
//   Contention   slowdowns of ops, messages and all-reduces ("sums") at the same time
//   nodes        which workers are on one node: they share its cores and its network interface
//
// A slowdown of 0.5 makes an activity take 1.5 times as long. shared_cores.cc simulates with these numbers.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace chimera {

/// Slowdowns of overlapping ops, messages and all-reduces; 0: no effect. The last two fields are savings.
struct Contention {
  double ops_by_sums = 0;  // Slowdown of an op or update while its worker takes part in an all-reduce
  double sums_by_ops = 0;  // Slowdown of an all-reduce while one of its workers runs an op
  /// Slowdown of a message or all-reduce for each other one that leaves the same worker at the same time, or enters it;
  /// the end with more transfers counts. An all-reduce both leaves and enters each of its workers. 1: they divide the
  /// bandwidth.
  double transfers = 0;
  /// Slowdown of a transfer between nodes for each other one that leaves the same node at the same time, or enters it,
  /// counted as for `transfers`.
  double node_transfers = 0;
  /// Slowdown of an op for each input of the worker's next op that has not arrived yet: on GPUs, its receive is posted
  /// while this op runs, and occupies multiprocessors while it waits.
  double ops_by_receives = 0;
  /// Fraction of an all-reduce's time that is saved while all of its workers have already started the next one, because
  /// one sends while the other adds. In [0, 1).
  double sums_overlap = 0;
  /// An op saves idle_gain * idle_share(ops, cores) of its time while `ops` ops, itself included, run on the node: the
  /// times in the costs are those while all cores compute. In [0, 1).
  double idle_gain = 0;

  /// Returns whether some activity slows or helps another.
  [[nodiscard]] bool any() const {
    return ops_by_sums > 0 || sums_by_ops > 0 || transfers > 0 || sums_overlap > 0 || node_transfers > 0 ||
           ops_by_receives > 0 || idle_gain > 0;
  }
  friend bool operator==(const Contention&, const Contention&) = default;
};

/// The node (host) of each worker of a data-parallel group. All groups do the same at the same time, so one group is
/// simulated for all: a worker of it stands for its copies in the other groups, which may be on the same node. Example:
/// two groups of two workers on two nodes, with both copies of a worker on one node, have node_of {0, 1} and copies
/// {2, 2}. All members empty: one node.
struct NodePlacement {
  std::vector<std::size_t> node_of = {};  // [worker]: its node
  std::vector<int> copies = {};           // [worker]: copies on its node, itself included
  std::vector<bool> sums_leave = {};      // [parameter group]: whether its all-reduce spans nodes

  /// Returns the number of nodes.
  [[nodiscard]] std::size_t count() const { return node_of.empty() ? 1 : *std::ranges::max_element(node_of) + 1; }
  /// Returns the node of a worker; 0 if there is only one.
  [[nodiscard]] std::size_t node(std::size_t worker) const { return node_of.empty() ? 0 : node_of[worker]; }
  /// Returns `copies` of a worker; 1 if the list is empty.
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

/// What workers share, and what that costs.
struct SharedCores {
  /// Number of workers that can compute at the same time on a node: the node's cores divided by the threads of a
  /// worker. All copies of a worker compute at once. If `nodes` is empty, one group is simulated with its part of the
  /// cores: of a machine with 8 cores and two groups, 4. Infinity: each worker has its own cores.
  double cores = std::numeric_limits<double>::infinity();
  /// Fraction of an all-reduce's time in which its workers compute (add, copy to and from sockets); in the rest they
  /// wait for the network.
  double all_reduce_share = 1;
  /// Slowdown of computation while workers need more cores than the node has, because each switch refills the caches.
  /// It comes on top of the wait for a core.
  double switching = 0;
  Contention contention = {};
  NodePlacement nodes = {};

  /// Whether activities can slow each other down.
  [[nodiscard]] bool are_shared() const { return std::isfinite(cores) || contention.any(); }
};

}  // namespace chimera
