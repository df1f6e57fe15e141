#pragma once

// What the workers of a group share on one or more machines: cores, network interfaces, caches. A plan or a command
// describes it by SharedCores; the default shares nothing. The simulator slows activities down accordingly
// (shared_cores.h). Shares are relative: 0.5 makes an activity take 1.5 times as long.

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <vector>

namespace chimera {

/// Relative slowdowns of overlapping ops, messages and all-reduces; 0: no effect.
struct Contention {
  double ops_by_sums = 0;  // an op or update while its worker takes part in an all-reduce
  double sums_by_ops = 0;  // an all-reduce while one of its workers runs an op
  /// A message or all-reduce, per other transfer that leaves (or enters) the same worker; the busiest end decides. An
  /// all-reduce does both on its workers. 1: transfers share an interface evenly.
  double transfers = 0;
  /// Fraction of an all-reduce's time saved if all of its workers have launched the next: one sends while the other
  /// adds. In [0, 1).
  double sums_overlap = 0;
  /// Slowdown like `transfers` for transfers between nodes that leave (or enter) the same node. 0: unknown.
  double node_transfers = 0;
  /// An op, per input of the worker's next op that is still to arrive: on GPUs a receive is posted one op before its
  /// turn and occupies multiprocessors while it waits.
  double ops_by_receives = 0;
  /// Fraction of an op's time saved if all cores of its node idled, in proportion to idle_share(). Durations are those
  /// while all compute. In [0, 1).
  double idle_gain = 0;

  [[nodiscard]] bool any() const {
    return ops_by_sums > 0 || sums_by_ops > 0 || transfers > 0 || sums_overlap > 0 || node_transfers > 0 ||
           ops_by_receives > 0 || idle_gain > 0;
  }
  friend bool operator==(const Contention&, const Contention&) = default;
};

/// Nodes of a group's workers, if data-parallel groups run in lockstep. Empty: one node.
struct NodePlacement {
  std::vector<std::size_t> node_of = {};  // [worker]
  std::vector<int> copies = {};           // [worker]: groups with this worker on the same node, including this group
  std::vector<bool> sums_leave = {};      // [parameter group]: whether its all-reduce spans nodes

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

/// Fraction of `cores` that idle beside `ops`; 0 if `cores` is infinite, as their number is unknown.
[[nodiscard]] inline double idle_share(double ops, double cores) {
  return std::isfinite(cores) ? std::max(0.0, 1 - ops / cores) : 0;
}

/// Cores that the workers of a group share evenly on each node.
struct SharedCores {
  /// Cores of a node divided by the threads t per worker. All groups run in lockstep, so one timeline represents all; a
  /// worker's computation counts once per copy on its node. Without `nodes`, for W groups on one machine: its cores /
  /// (W t). Infinity: each worker has cores of its own.
  double cores = std::numeric_limits<double>::infinity();
  /// Fraction of an all-reduce's time while its workers compute (add, copy to and from sockets); the rest waits for
  /// the network.
  double all_reduce_share = 1;
  /// Relative slowdown of computation while it needs more cores than a node has: caches are refilled at each switch.
  double switching = 0;
  Contention contention = {};
  NodePlacement nodes = {};

  /// Whether activities can slow each other down.
  [[nodiscard]] bool are_shared() const { return std::isfinite(cores) || contention.any(); }
};

}  // namespace chimera
