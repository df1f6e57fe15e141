// least_makespan(): LongestPaths gives each op a head and a tail, and WorkerBound derives a bound from the ops of one
// worker. raise_bound(): bisect() closes in on the largest deadline that Windows refutes, between the bound so far and
// a deadline that it cannot refute.

#include "search/makespan_bound.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <tuple>
#include <utility>
#include <vector>

namespace chimera {
namespace {

/// An op of a worker: its earliest start `head`, and the least time `tail` after its end.
struct OpWindow {
  double head = 0;
  double duration = 0;
  double tail = 0;
  bool takes = false;     // memory, at its start
  bool releases = false;  // memory, at its end
};

/// Lower bounds on the end of a worker's jobs and their tails. Keeps its buffers between calls.
class WorkerBound {
 public:
  /// Bound with preemption: the job with the longest tail runs first (Jackson's rule). Sorts jobs by head.
  double of_work(std::vector<OpWindow>& jobs) {
    // Breaks ties, so that all standard libraries agree.
    const auto shorter = [](const OpWindow& a, const OpWindow& b) {
      return std::tie(a.tail, a.duration, a.head) < std::tie(b.tail, b.duration, b.head);
    };
    sort_by_head(jobs);
    waiting_.clear();
    double time = 0;
    double bound = 0;
    for (std::size_t next = 0; next < jobs.size() || !waiting_.empty();) {
      if (waiting_.empty()) time = std::max(time, jobs[next].head);
      for (; next < jobs.size() && jobs[next].head <= time; ++next) {
        waiting_.push_back(jobs[next]);
        std::push_heap(waiting_.begin(), waiting_.end(), shorter);
      }
      std::pop_heap(waiting_.begin(), waiting_.end(), shorter);
      OpWindow job = waiting_.back();
      waiting_.pop_back();
      if (next == jobs.size() || time + job.duration <= jobs[next].head) {
        time += job.duration;
        bound = std::max(bound, time + job.tail);
        continue;
      }
      job.duration -= jobs[next].head - time;
      time = jobs[next].head;
      waiting_.push_back(job);
      std::push_heap(waiting_.begin(), waiting_.end(), shorter);
    }
    return bound;
  }

  /// Bound from memory: at most `room` takers start before a releaser ends, and another per ended releaser. Returns 0
  /// if no taker must wait.
  ///
  /// The k-th taker to start needs k - room ended releasers; their earliest end is its turn. For each tail q, consider
  /// the jobs with tails of at least q: the i-th taker to arrive starts no earlier than turn i. Taking the longest
  /// takers first leaves the least work at any time, so this ends no later than any schedule; q follows.
  double of_room(std::vector<OpWindow>& jobs, std::int64_t room) {
    sort_by_head(jobs);
    find_turns(jobs, room);
    if (turns_.empty() || turns_.back() <= 0) return 0;
    by_duration_.clear();
    tails_.clear();
    for (const OpWindow& job : jobs) {
      tails_.push_back(job.tail);
      if (job.takes) by_duration_.push_back(job);
    }
    std::stable_sort(by_duration_.begin(), by_duration_.end(),
                     [](const OpWindow& a, const OpWindow& b) { return a.duration > b.duration; });
    std::sort(tails_.begin(), tails_.end());
    tails_.erase(std::unique(tails_.begin(), tails_.end()), tails_.end());
    double bound = 0;
    for (const double tail : tails_) bound = std::max(bound, end_of_work(jobs, tail) + tail);
    return bound;
  }

  /// of_room() backward in time. Swaps heads and tails.
  double of_room_backwards(std::vector<OpWindow>& jobs, std::int64_t room) {
    for (OpWindow& job : jobs) {
      std::swap(job.head, job.tail);
      std::swap(job.takes, job.releases);
    }
    return of_room(jobs, room);
  }

 private:
  static void sort_by_head(std::vector<OpWindow>& jobs) {
    std::stable_sort(jobs.begin(), jobs.end(), [](const OpWindow& a, const OpWindow& b) { return a.head < b.head; });
  }

  /// The i-th taker to start, from 0, waits for the end of i + 1 - room releasers. Requires jobs sorted by head.
  void find_turns(const std::vector<OpWindow>& jobs, std::int64_t room) {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    double shortest = kInfinity;
    std::size_t takers = 0;
    ends_.clear();
    for (const OpWindow& job : jobs) {
      takers += job.takes ? 1 : 0;
      if (!job.releases) continue;
      shortest = std::min(shortest, job.duration);
      ends_.push_back(job.head + job.duration);
    }
    // A worker runs one op at a time, so consecutive ends are at least the shortest releaser apart.
    std::sort(ends_.begin(), ends_.end());
    for (std::size_t i = 1; i < ends_.size(); ++i) ends_[i] = std::max(ends_[i], ends_[i - 1] + shortest);
    turns_.clear();
    for (std::size_t i = 0; i < takers; ++i) {
      const std::int64_t needed = static_cast<std::int64_t>(i) + 1 - room;
      turns_.push_back(needed > 0 ? ends_[static_cast<std::size_t>(needed) - 1] : 0);
    }
  }

  /// Returns the end of all jobs with tails of at least `least_tail`, with each taker after its turn.
  double end_of_work(const std::vector<OpWindow>& jobs, double least_tail) {
    const auto counts = [least_tail](const OpWindow& job) { return job.tail >= least_tail; };
    auto other = jobs.begin();  // the next job that is not a taker
    auto longest = by_duration_.begin();
    std::size_t turn = 0;
    double time = 0;
    const auto run_others_until = [&](double start) {
      for (; other != jobs.end() && other->head <= start; ++other)
        if (!other->takes && counts(*other)) time = std::max(time, other->head) + other->duration;
    };
    for (const OpWindow& taker : jobs) {
      if (!taker.takes || !counts(taker)) continue;
      const double start = std::max(taker.head, turns_[turn++]);
      run_others_until(start);
      while (!counts(*longest)) ++longest;
      time = std::max(time, start) + longest->duration;
      ++longest;
    }
    run_others_until(std::numeric_limits<double>::infinity());
    return time;
  }

  std::vector<OpWindow> waiting_;      // a heap, longest tail first
  std::vector<double> ends_;           // [i]: earliest end of i + 1 releasers
  std::vector<double> turns_;          // [i-th taker to start]
  std::vector<OpWindow> by_duration_;  // takers, longest first
  std::vector<double> tails_;          // all distinct tails
};

/// Heads and tails of all ops: longest paths through dependencies, queues and memory. Both follow the same edges, in
/// opposite directions.
class LongestPaths {
 public:
  explicit LongestPaths(const Instance& instance)
      : instance_(instance), head_(static_cast<std::size_t>(instance.ops), 0), tail_(head_.size(), 0) {
    for (std::size_t chain = 0; chain < instance.replica.size(); ++chain)
      most_alone_.push_back(most_in_flight_alone(instance, chain));
    const std::vector<Position> positions = in_order();
    for (const Position at : positions) {
      for_each_input(at, [&](Position input, double delay) {
        raise(head_[op(at)], head_[op(input)] + queue(input).duration + delay);
      });
    }
    for (auto at = positions.rbegin(); at != positions.rend(); ++at) {
      for_each_input(*at, [&](Position input, double delay) {
        raise(tail_[op(input)], delay + queue(*at).duration + tail_[op(*at)]);
      });
    }
  }

  [[nodiscard]] double head(std::size_t op) const { return head_[op]; }
  [[nodiscard]] double tail(std::size_t op) const { return tail_[op]; }

 private:
  /// The k-th op of a queue.
  struct Position {
    std::size_t queue = 0;
    std::int32_t k = 0;
  };

  [[nodiscard]] const OpQueue& queue(Position at) const { return instance_.queues[at.queue]; }
  [[nodiscard]] std::size_t op(Position at) const { return static_cast<std::size_t>(queue(at).first + at.k); }
  static void raise(double& value, double to) { value = std::max(value, to); }

  /// Returns all ops, each after its inputs: micro-batch by micro-batch, because all its forwards precede all its
  /// backwards.
  [[nodiscard]] std::vector<Position> in_order() const {
    const std::vector<std::size_t> queues = queues_in_order(instance_);
    const std::int32_t most = std::ranges::max_element(instance_.queues, {}, &OpQueue::count)->count;
    std::vector<Position> positions;
    for (std::int32_t first = 0; first < most; first += instance_.slices) {
      for (const std::size_t index : queues) {
        const std::int32_t stop = std::min(first + instance_.slices, instance_.queues[index].count);
        for (std::int32_t k = first; k < stop; ++k) positions.push_back({index, k});
      }
    }
    return positions;
  }

  /// Calls `use(input, delay)` for the ops that must end `delay` before this one starts: the queue's previous op, the
  /// op's own previous step, its message, and the op that frees the memory which a forward takes.
  template <class Use>
  void for_each_input(Position at, const Use& use) const {
    const std::size_t step = at.queue % kQueuesOfChain;
    const std::size_t chain = at.queue / kQueuesOfChain;
    if (at.k > 0) use({at.queue, at.k - 1}, 0);
    if (step != kForwardStep) use({at.queue - 1, static_cast<std::int32_t>(instance_.needed(step, at.k)) - 1}, 0);
    if (queue(at).input != kNoQueue) use({static_cast<std::size_t>(queue(at).input), at.k}, queue(at).delay);
    if (!queue(at).takes || at.k < most_alone_[chain]) return;
    const std::size_t release = instance_.split_backward ? kWeightStep : kInputStep;
    use({kQueuesOfChain * chain + release, at.k - most_alone_[chain]}, 0);
  }

  const Instance& instance_;
  std::vector<std::int32_t> most_alone_;  // [chain]: room for micro-batches, if the chain were alone
  std::vector<double> head_;              // [op]
  std::vector<double> tail_;              // [op]
};

std::size_t ops_of(const Instance& instance, const std::vector<std::int32_t>& chains) {
  std::size_t ops = 0;
  for (const std::int32_t chain : chains)
    for (QueueIndex step = 0; step < kQueuesOfChain; ++step)
      ops += static_cast<std::size_t>(instance.queues[static_cast<std::size_t>(kQueuesOfChain * chain + step)].count);
  return ops;
}

/// Returns the largest refuted deadline between `bound` and `open`, which is not refuted. `known` holds facts true of
/// every schedule that ends by `open`. `conclude(state, deadline)` adds consequences; false: no schedule meets the
/// deadline.
template <typename Conclude>
double bisect(double bound, double open, double close, WindowState known, const Phase& phase, Conclude conclude) {
  while (open - bound > close * open && !phase.is_over()) {
    const double middle = (bound + open) / 2;
    WindowState state = known;
    if (!conclude(state, middle)) {
      bound = middle;
      continue;
    }
    open = middle;
    known = std::move(state);  // facts for a deadline also hold for earlier ones
  }
  return bound;
}

}  // namespace

/// Heads and tails hold without a deadline. Each worker then is a one-machine problem, whose bounds are computed one by
/// one; the largest wins.
double least_makespan(const Instance& instance) {
  const LongestPaths paths(instance);
  double bound = 0;
  std::vector<std::vector<OpWindow>> jobs(static_cast<std::size_t>(instance.workers));
  for (const OpQueue& queue : instance.queues) {
    for (std::int32_t k = 0; k < queue.count; ++k) {
      const auto op = static_cast<std::size_t>(queue.first + k);
      bound = std::max(bound, paths.head(op) + queue.duration + paths.tail(op));
      jobs[static_cast<std::size_t>(queue.worker)].push_back({.head = paths.head(op),
                                                              .duration = queue.duration,
                                                              .tail = paths.tail(op),
                                                              .takes = queue.takes,
                                                              .releases = queue.releases});
    }
  }
  WorkerBound of_worker;
  for (std::size_t w = 0; w < jobs.size(); ++w) {
    bound = std::max(bound, of_worker.of_work(jobs[w]));
    const std::int64_t room = most_in_flight(instance, w);
    if (std::ranges::count_if(jobs[w], &OpWindow::takes) <= room) continue;
    bound = std::max(bound, of_worker.of_room(jobs[w], room));
    bound = std::max(bound, of_worker.of_room_backwards(jobs[w], room));
  }
  return bound;
}

RaisedBound raise_bound(const Instance& instance, double bound, double makespan, Phase phase) {
  constexpr double kClose = 1e-4;
  constexpr double kCloseByProbing = 4e-4;
  constexpr double kShareOfEach = 0.5;  // share of the remaining time
  // Windows keeps a matrix of all pairs of a worker's ops.
  const bool is_large = std::ranges::any_of(
      instance.chains, [&](const auto& chains) { return ops_of(instance, chains) > kMaxNarrowedOps; });
  if (is_large) return {bound, {}};
  Windows windows(instance);
  RaisedBound raised{bound, windows.at_start()};
  const double almost = deadline_below(makespan);
  if (bound >= almost || phase.is_over()) return raised;
  const auto narrow = [&](WindowState& state, double deadline) {
    phase.count(kTimedForAState);
    return windows.narrow(state, deadline);
  };
  const auto probe = [&](WindowState& state, double deadline) {
    return windows.probe(state, deadline, Phase(phase, kShareOfEach));
  };
  // If not even `almost` can be met, the known schedule is optimal. Else bisect between the bound and `almost`: first
  // by cheap narrowing, then by probing, which refutes more deadlines but costs a pass for each open pair.
  if (!narrow(raised.state, almost)) return {makespan, {}};
  raised.bound = bisect(raised.bound, almost, kClose, raised.state, phase, narrow);
  if (!probe(raised.state, almost)) return {makespan, {}};
  raised.bound = bisect(raised.bound, almost, kCloseByProbing, raised.state, phase, probe);
  return raised;
}

}  // namespace chimera
