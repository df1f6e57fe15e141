#pragma once

// Constraint propagation, with which the search proves that no schedule meets a deadline. An op's window begins at its
// earliest start (head), and ends at the deadline less the time that must follow the op (tail). Consequences of the
// deadline narrow the windows. If a window becomes shorter than its op, no schedule meets the deadline: it is
// *refuted*.
//
//     0        head           deadline - tail      deadline
//     |---------[===== op =====........]---------------|
//
// raise_bound() (makespan_bound.h) raises the lower bound with it. Branch and bound decides the order of two ops,
// narrows the windows, and goes back if the deadline is refuted.

#include <limits>
#include <utility>

#include "search/budget.h"
#include "search/instance.h"

namespace chimera {

/// Order of two ops of a worker. Ops have the numbers of the Instance (OpQueue::first in instance.h).
struct Precedence {
  std::size_t first = 0;
  std::size_t second = 0;
};

/// Facts that are true of every schedule that meets a deadline. `before` numbers the ops of a worker in an order of
/// Windows; other code only copies it.
struct WindowState {
  std::vector<double> head;                       // [op]: earliest start
  std::vector<double> tail;                       // [op]: least time from its end to the end of the schedule
  std::vector<std::vector<std::uint8_t>> before;  // [worker][i * n + j], n ops: whether its i-th op precedes its j-th
};

/// Number of timed schedules (budget.h) that one narrowing of all windows counts as.
inline constexpr std::int64_t kTimedForAState = 256;

/// Returns the deadline that a schedule must meet to improve on `makespan`, allowing for rounding.
[[nodiscard]] inline double deadline_below(double makespan) { return makespan * (1 - kRounding); }

/// Finds consequences of a deadline, until there are no more. It uses these rules:
///
/// - Heads and tails follow dependencies and queues.
/// - If two ops of a worker miss the deadline in one order, the other order holds.
/// - An op starts after its predecessors on its worker, which run one at a time.
/// - Edge finding: if a set of ops together with another op cannot end before the last deadline of the set, this op
///   follows the set (Carlier and Pinson, Management Science 1989). If the set alone cannot, there is no schedule.
/// - Memory: on a worker with memory for h micro-batches, a forward that follows b other forwards waits until the
///   memory of b + 1 - h micro-batches is released. The same holds backward in time.
class Windows {
 public:
  /// Borrows the instance.
  explicit Windows(const Instance& instance);

  /// Returns the facts without a deadline.
  [[nodiscard]] WindowState at_start() const;

  /// Adds all consequences of `deadline` to `state`. Returns false if no schedule with the facts in `state` meets it;
  /// `state` is then meaningless.
  bool narrow(WindowState& state, double deadline);

  /// Does the same after adding a precedence.
  bool narrow(WindowState& state, double deadline, Precedence added);

  /// Does the same, and finds more consequences: for two ops whose order is not known, it assumes an order and narrows
  /// a copy of the state. If this refutes the deadline, the opposite order holds (shaving: Martin and Shmoys, IPCO
  /// 1996). Repeats until there are no more consequences, or the phase ends.
  bool probe(WindowState& state, double deadline, Phase phase);

  /// Returns the two ops of unknown order with the least slack, in the order that leaves more slack. Ops that overlap
  /// if they start at their heads come first. Returns nullopt if all orders are known. Uses the deadline of the last
  /// call of narrow() or probe().
  [[nodiscard]] std::optional<Precedence> tightest_choice(const WindowState& state) const;

  /// Returns every worker's ops as queues, sorted by their heads.
  [[nodiscard]] Orders orders_by_head(const WindowState& state) const;

 private:
  static constexpr double kEndless = std::numeric_limits<double>::infinity();
  /// An op: the k-th of a queue.
  struct Place {
    std::size_t op = 0;
    QueueIndex queue = 0;
    std::int32_t k = 0;
  };
  struct Window {
    double head = 0;
    double duration = 0;
    double tail = 0;
    std::size_t place = 0;     // position in the worker's list
    bool is_inside = false;    // whether it must end by the deadline that find_edges() tries
    std::size_t followed = 0;  // number of by_tail_ known to precede it
  };
  /// A worker's windows, forward or backward in time. Backward swaps heads with tails and reverses precedences.
  struct View {
    std::size_t worker = 0;
    bool backwards = false;
    std::vector<double>* head = nullptr;
    std::vector<double>* tail = nullptr;
    std::vector<std::uint8_t>* before = nullptr;
  };

  [[nodiscard]] const OpQueue& queue(const Place& place) const {
    return instance_.queues[static_cast<std::size_t>(place.queue)];
  }
  [[nodiscard]] double duration(const Place& place) const { return queue(place).duration; }
  [[nodiscard]] double& head(const View& view, std::size_t i) const { return (*view.head)[places_[view.worker][i].op]; }
  [[nodiscard]] double& tail(const View& view, std::size_t i) const { return (*view.tail)[places_[view.worker][i].op]; }
  [[nodiscard]] std::uint8_t& known(const View& view, std::size_t i, std::size_t j) const {
    return (*view.before)[view.backwards ? j * places_[view.worker].size() + i : i * places_[view.worker].size() + j];
  }

  /// Returns whether a precedes b in every schedule, whatever the deadline.
  [[nodiscard]] bool precedes_anyway(const Place& a, const Place& b) const;
  // The functions below that return bool return false if they refute the deadline, except is_strongest_open().
  bool narrow_all(WindowState& state);
  [[nodiscard]] bool is_strongest_open(const WindowState& state, std::size_t worker, std::size_t i,
                                       std::size_t j) const;
  /// Raises a head or tail of the worker to at least `to`.
  void raise(double& value, double to, std::size_t worker);
  bool follow_messages(WindowState& state);
  bool narrow_worker(WindowState& state, std::size_t worker);
  /// Adds that the worker's i-th op precedes its j-th.
  bool precede(const View& view, std::size_t i, std::size_t j);
  /// Copies the windows of a view to now_.
  void load_view(const View& view);
  bool decide_pairs(const View& view);
  void wait_for_predecessors(const View& view);
  bool find_edges(const View& view);
  bool find_edges_of(const View& view, std::size_t count, double end);
  void wait_for_room(const View& view);

  const Instance& instance_;
  double least_ = mean_duration(instance_) * kRounding;  // smallest relevant difference
  double deadline_ = 0;
  std::vector<std::size_t> queues_ = queues_in_order(instance_);  // all queues, in topological order
  std::vector<std::vector<Place>> places_;                        // [worker]
  std::vector<std::pair<std::size_t, std::size_t>> place_of_;     // [op]: worker, and index in places_
  std::vector<std::int64_t> room_;                                // [worker]: micro-batches
  std::vector<std::uint8_t> stale_;                               // [worker]: whether its windows changed
  // Buffers kept between calls.
  WindowState assumed_;
  std::vector<Window> now_;  // sorted by head
  std::vector<std::size_t> by_tail_;
  std::vector<double> ends_;
  std::vector<double> sums_;
  std::vector<std::pair<std::size_t, double>> later_;
};

}  // namespace chimera
