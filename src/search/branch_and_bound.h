#pragma once
// Exact search, which decides which of two ops of a worker goes first, pair after pair.

#include <cstdint>
#include <optional>
#include <vector>

#include "search/annealing.h"
#include "search/budget.h"
#include "search/instance.h"
#include "search/windows.h"

namespace chimera {

/// Goes through all orders that beat the best known makespan, depth first: narrows the windows of all ops, takes the
/// pair of ops of a worker with the least time to spare, and tries it in both orders (Brucker, Jurisch and Sievers,
/// Discrete Applied Mathematics 1994, branch on precedences likewise). On the way it times the orders that the heads
/// suggest. Can be interrupted and goes on from there. Holds a reference to the instance.
class BranchAndBound {
 public:
  /// Part `part` of the tree of all orders that beat `makespan`, which some schedule has or more: its first decisions
  /// are the binary digits of that number, `digits` of them. All parts for one makespan and one `state`, which says
  /// what is so in every schedule that beats it, together are the whole tree: which pairs are decided first depends on
  /// nothing else.
  BranchAndBound(const Instance& instance, double makespan, WindowState state, std::int64_t part = 0, int digits = 0);

  /// Searches for less than `best.makespan` until the phase is over; replaces `best` with what it finds. Whether it has
  /// gone through its whole part: then no order of that part beats `best`.
  bool run(Solution& best, Phase phase);

 private:
  /// A state whose precedences are still to be branched on; `added` is the last of them.
  struct Node {
    WindowState state;
    std::optional<Precedence> added;
  };

  void expand(Node node, Solution& best);
  void time_orders(const WindowState& state, Solution& best);

  Windows windows_;
  const Instance& instance_;
  std::vector<Node> open_;  // the last one is next
};

/// Whether a problem can be searched exactly: it is small enough to keep the states of a tree (kMostExactOps), and
/// every op takes time, so that heads put ops in order.
[[nodiscard]] bool can_be_exact(const Instance& instance);

/// No larger problem is tried exactly.
inline constexpr std::int32_t kMostExactOps = 480;

}  // namespace chimera
