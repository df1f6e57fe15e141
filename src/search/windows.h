#pragma once
// What must be so in every schedule that ends in time: when each op may run, and which ops of a worker precede others.

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "search/budget.h"
#include "search/instance.h"

namespace chimera {

/// The first of two ops of a worker runs before the second. Ops by their number in the instance.
struct Precedence {
  std::size_t first = 0;
  std::size_t second = 0;
};

/// Heads, tails and precedences as far as they are known.
struct WindowState {
  std::vector<double> head;                       // [op]: it starts no earlier
  std::vector<double> tail;                       // [op]: what passes after its end at least
  std::vector<std::vector<std::uint8_t>> before;  // [worker][i * n + j]: whether its i-th op precedes its j-th
};

/// What one state costs, in schedules timed.
inline constexpr std::int64_t kTimedForAState = 256;

/// Beyond which nothing is better, but for rounding.
[[nodiscard]] inline double deadline_below(double makespan) { return makespan * (1 - kRounding); }

/// Draws conclusions from a time limit until none is left:
///
/// - along the dependencies, and from op to op of a lane;
/// - of two ops of a worker one must go first if the other cannot (in time);
/// - an op waits for all that precede it on its worker to be done, one at a time;
/// - edge finding: where a set of ops and one op more cannot end before the set's last deadline, the one follows them
///   all (Carlier and Pinson, Management Science 1989); where the set itself cannot, there is no such schedule;
/// - memory: a forward with b forwards before it, on a worker with room for h micro-batches, waits for b + 1 - h of
///   them to be released; and so the releases backwards in time.
class Windows {
 public:
  explicit Windows(const Instance& instance);

  /// What is known without a limit of time.
  [[nodiscard]] WindowState at_start() const;

  /// Adds what follows if the schedule is to end by `deadline`. False if no schedule of that state does.
  bool narrow(WindowState& state, double deadline);

  /// narrow() after one op precedes another of its worker.
  bool narrow(WindowState& state, double deadline, Precedence added);

  /// narrow(), which then assumes of two ops of a worker that one precedes the other, pair after pair: where that is
  /// refuted it is the other way round (shaving: Martin and Shmoys, IPCO 1996). Until nothing more follows, or the
  /// phase is over.
  bool probe(WindowState& state, double deadline, Phase phase);

  /// Two ops of a worker that could still run in either order, the pair with the least time to spare: first the order
  /// that leaves more. Pairs that would overlap if every op started at its head come first. None where all pairs are
  /// decided. Counts from the deadline of the last narrow().
  [[nodiscard]] std::optional<Precedence> tightest_choice(const WindowState& state) const;

  /// Every worker's lanes in the order of their heads.
  [[nodiscard]] Orders orders_by_head(const WindowState& state) const;

 private:
  /// An op in its worker's list.
  struct Place {
    std::size_t op = 0;
    LaneIndex lane = 0;
    std::int32_t k = 0;
  };
  struct Window {
    double head = 0;
    double duration = 0;
    double tail = 0;
    std::size_t place = 0;  // in its worker's list
  };
  /// One worker's windows, forwards or backwards in time: then heads are tails, and what precedes follows.
  struct View {
    std::size_t worker = 0;
    bool backwards = false;
    std::vector<double>* head = nullptr;
    std::vector<double>* tail = nullptr;
    std::vector<std::uint8_t>* before = nullptr;
  };

  [[nodiscard]] const Lane& lane(const Place& place) const {
    return instance_.lanes[static_cast<std::size_t>(place.lane)];
  }
  [[nodiscard]] double duration(const Place& place) const { return lane(place).duration; }
  [[nodiscard]] double& head(const View& view, std::size_t i) const { return (*view.head)[places_[view.worker][i].op]; }
  [[nodiscard]] double& tail(const View& view, std::size_t i) const { return (*view.tail)[places_[view.worker][i].op]; }
  /// Whether the worker's i-th op precedes its j-th.
  [[nodiscard]] std::uint8_t& known(const View& view, std::size_t i, std::size_t j) const {
    return (*view.before)[view.backwards ? j * places_[view.worker].size() + i : i * places_[view.worker].size() + j];
  }

  [[nodiscard]] bool precedes_anyway(const Place& a, const Place& b) const;
  bool narrow_all(WindowState& state);
  [[nodiscard]] bool says_most(const WindowState& state, std::size_t worker, std::size_t i, std::size_t j) const;
  void raise(double& value, double to, std::size_t worker);
  bool follow_messages(WindowState& state);
  bool narrow_worker(WindowState& state, std::size_t worker);
  bool precede(const View& view, std::size_t i, std::size_t j);
  void look_at(const View& view);
  bool decide_pairs(const View& view);
  void wait_for_predecessors(const View& view);
  bool find_edges(const View& view);
  bool find_edges_of(const View& view, std::size_t count, double end);
  void wait_for_room(const View& view);
  void look_for_choice(const WindowState& state, std::size_t worker, bool overlapping, Precedence& best,
                       double& least) const;

  const Instance& instance_;
  double least_;  // a difference that counts
  double deadline_ = 0;
  std::vector<std::size_t> lanes_;                             // each after its input
  std::vector<std::vector<Place>> places_;                     // [worker]
  std::vector<std::pair<std::size_t, std::size_t>> place_of_;  // [op]: worker, and number in its list
  std::vector<std::int64_t> room_;                             // [worker]: micro-batches
  std::vector<std::uint8_t> stale_;                            // [worker]: whether something changed there
  // Lists that are kept between calls.
  WindowState assumed_;
  std::vector<Window> now_;  // by their heads
  std::vector<std::size_t> by_tail_;
  std::vector<std::uint8_t> inside_;
  std::vector<std::size_t> followed_;  // [i]: of by_tail_, known to precede it
  std::vector<double> ends_;
  std::vector<double> sums_;
  std::vector<std::pair<std::size_t, double>> later_;
};

}  // namespace chimera
