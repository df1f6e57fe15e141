// narrow() marks the workers whose windows must be looked at, and calls narrow_all(), which alternates between rules
// across workers (follow_messages()) and rules on one worker (narrow_worker()) until nothing changes. Each rule on a
// worker is written for heads, forward in time. A View that swaps heads and tails and turns precedences around applies
// the same code backward in time.

#include "search/windows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>

namespace chimera {
Windows::Windows(const Instance& instance)
    : instance_(instance), places_(static_cast<std::size_t>(instance.workers)), stale_(places_.size(), 1) {
  for (std::size_t index = 0; index < instance.queues.size(); ++index) {
    const OpQueue& queue = instance.queues[index];
    for (std::int32_t k = 0; k < queue.count; ++k) {
      places_[static_cast<std::size_t>(queue.worker)].push_back(
          {static_cast<std::size_t>(queue.first + k), static_cast<QueueIndex>(index), k});
    }
  }
  place_of_.resize(static_cast<std::size_t>(instance.ops));
  for (std::size_t w = 0; w < places_.size(); ++w) {
    room_.push_back(most_in_flight(instance, w));
    for (std::size_t i = 0; i < places_[w].size(); ++i) place_of_[places_[w][i].op] = {w, i};
  }
}

/// Ops of a queue, steps of a micro-batch, and ops ordered by the memory of their chain.
bool Windows::precedes_anyway(const Place& a, const Place& b) const {
  if (a.queue == b.queue) return a.k < b.k;
  const QueueIndex chain = a.queue / kQueuesOfChain;
  if (chain != b.queue / kQueuesOfChain) return false;
  const bool is_forward = a.queue % kQueuesOfChain == kForwardStep;
  if (a.queue < b.queue) return a.k < instance_.needed(is_forward ? kInputStep : kWeightStep, b.k);
  const OpQueue& later = queue(b);
  return queue(a).releases && later.takes &&
         b.k - a.k >= most_in_flight_alone(instance_, static_cast<std::size_t>(chain));
}

WindowState Windows::at_start() const {
  WindowState state;
  state.head.assign(static_cast<std::size_t>(instance_.ops), 0);
  state.tail = state.head;
  for (const auto& places : places_) {
    const std::size_t n = places.size();
    auto& before = state.before.emplace_back(n * n, 0);
    for (std::size_t i = 0; i < n; ++i)
      for (std::size_t j = 0; j < n; ++j) before[i * n + j] = precedes_anyway(places[i], places[j]) ? 1 : 0;
  }
  return state;
}

bool Windows::narrow(WindowState& state, double deadline) {
  deadline_ = deadline;
  std::fill(stale_.begin(), stale_.end(), 1);
  return narrow_all(state);
}

bool Windows::narrow(WindowState& state, double deadline, Precedence added) {
  deadline_ = deadline;
  std::fill(stale_.begin(), stale_.end(), 0);
  const auto [worker, i] = place_of_[added.first];
  const View view{worker, false, &state.head, &state.tail, &state.before[worker]};
  stale_[worker] = 1;
  return precede(view, i, place_of_[added.second].second) && narrow_all(state);
}

bool Windows::probe(WindowState& state, double deadline, Phase phase) {
  if (!narrow(state, deadline)) return false;
  // A refuted assumption changes the state, which may refute assumptions that held before.
  for (bool has_learned = true; has_learned;) {
    has_learned = false;
    for (std::size_t worker = 0; worker < places_.size(); ++worker) {
      const auto& places = places_[worker];
      for (std::size_t pair = 0; pair < places.size() * places.size(); ++pair) {
        const std::size_t i = pair / places.size();
        const std::size_t j = pair % places.size();
        if (!is_strongest_open(state, worker, i, j)) continue;
        if (phase.is_over()) return true;
        phase.count(kTimedForAState);
        assumed_ = state;
        if (narrow(assumed_, deadline, {places[i].op, places[j].op})) continue;
        if (!narrow(state, deadline, {places[j].op, places[i].op})) return false;
        has_learned = true;
      }
    }
  }
  return true;
}

/// Returns whether i before j is undecided and not implied by another undecided precedence of their queues: if that is
/// not refuted, the implied one hardly is.
bool Windows::is_strongest_open(const WindowState& state, std::size_t worker, std::size_t i, std::size_t j) const {
  const auto& places = places_[worker];
  const std::size_t n = places.size();
  const auto& before = state.before[worker];
  const auto is_open = [&](std::size_t a, std::size_t b) {
    return a != b && before[a * n + b] == 0 && before[b * n + a] == 0;
  };
  if (!is_open(i, j)) return false;
  if (i + 1 < n && places[i + 1].queue == places[i].queue && is_open(i + 1, j)) return false;
  return j == 0 || places[j - 1].queue != places[j].queue || !is_open(i, j - 1);
}

/// Alternates what follows from messages, which connect workers, with what follows on each worker whose windows
/// changed, until nothing changes. Each conclusion only raises heads and tails, so the order does not matter.
bool Windows::narrow_all(WindowState& state) {
  while (true) {
    if (!follow_messages(state)) return false;
    const auto stale = std::find(stale_.begin(), stale_.end(), 1);
    if (stale == stale_.end()) return true;
    for (std::size_t w = 0; w < stale_.size(); ++w) {
      if (stale_[w] == 0) continue;
      stale_[w] = 0;
      if (!narrow_worker(state, w)) return false;
    }
  }
}

/// Raises a head or tail and marks its worker for another pass. Raises below `least_` are rounding errors; following
/// them could take forever.
void Windows::raise(double& value, double to, std::size_t worker) {
  if (to <= value + least_) return;
  value = to;
  stale_[worker] = 1;
}

/// Returns false if a path misses the deadline.
bool Windows::follow_messages(WindowState& state) {
  for (const std::size_t index : queues_) {
    const OpQueue& queue = instance_.queues[index];
    if (queue.input == kNoQueue) continue;
    const OpQueue& input = instance_.queues[static_cast<std::size_t>(queue.input)];
    for (std::int32_t k = 0; k < queue.count; ++k) {
      const auto op = static_cast<std::size_t>(queue.first + k);
      const double arrival = state.head[static_cast<std::size_t>(input.first + k)] + input.duration + queue.delay;
      raise(state.head[op], arrival, static_cast<std::size_t>(queue.worker));
    }
  }
  for (auto index = queues_.rbegin(); index != queues_.rend(); ++index) {
    const OpQueue& queue = instance_.queues[*index];
    if (queue.output == kNoQueue) continue;
    const OpQueue& output = instance_.queues[static_cast<std::size_t>(queue.output)];
    for (std::int32_t k = 0; k < queue.count; ++k) {
      const auto op = static_cast<std::size_t>(queue.first + k);
      const double behind = output.delay + output.duration + state.tail[static_cast<std::size_t>(output.first + k)];
      raise(state.tail[op], behind, static_cast<std::size_t>(queue.worker));
    }
  }
  for (const OpQueue& queue : instance_.queues) {
    for (std::int32_t k = 0; k < queue.count; ++k) {
      const auto op = static_cast<std::size_t>(queue.first + k);
      if (state.head[op] + queue.duration + state.tail[op] > deadline_) return false;
    }
  }
  return true;
}

/// Draws all conclusions forward, then the same backward in time: a rule about heads then raises tails, and a rule
/// about predecessors holds for successors. Pairs are symmetric, so they are decided once.
bool Windows::narrow_worker(WindowState& state, std::size_t worker) {
  for (const bool backwards : {false, true}) {
    const View view{worker, backwards, backwards ? &state.tail : &state.head, backwards ? &state.head : &state.tail,
                    &state.before[worker]};
    if (!backwards && !decide_pairs(view)) return false;
    load_view(view);
    wait_for_predecessors(view);
    if (!find_edges(view)) return false;
    wait_for_room(view);
  }
  return true;
}

/// Returns false if the opposite is known.
bool Windows::precede(const View& view, std::size_t i, std::size_t j) {
  std::uint8_t& before = known(view, i, j);
  if (before != 0) return true;
  if (known(view, j, i) != 0) return false;
  before = 1;
  stale_[view.worker] = 1;
  const auto& places = places_[view.worker];
  raise(head(view, j), head(view, i) + duration(places[i]), view.worker);
  raise(tail(view, i), tail(view, j) + duration(places[j]), view.worker);
  return true;
}

/// Copies the windows, because conclusions from an order of heads must not see them change.
void Windows::load_view(const View& view) {
  const auto& places = places_[view.worker];
  now_.clear();
  for (std::size_t i = 0; i < places.size(); ++i)
    now_.push_back({.head = head(view, i), .duration = duration(places[i]), .tail = tail(view, i), .place = i});
  std::stable_sort(now_.begin(), now_.end(), [](const Window& a, const Window& b) { return a.head < b.head; });
}

/// If i cannot follow j before the deadline, i precedes j. The test costs n^2 per pass, but finds most precedences.
bool Windows::decide_pairs(const View& view) {
  const auto& places = places_[view.worker];
  for (std::size_t i = 0; i < places.size(); ++i) {
    for (std::size_t j = 0; j < places.size(); ++j) {
      if (i == j || known(view, j, i) != 0 || known(view, i, j) != 0) continue;
      const double work = duration(places[i]) + duration(places[j]);
      if (head(view, j) + work + tail(view, i) > deadline_ && !precede(view, i, j)) return false;
    }
  }
  return true;
}

/// An op starts after all its known predecessors. They run one at a time, so they end no earlier than if each ran as
/// soon as its head allows, in the order of heads.
void Windows::wait_for_predecessors(const View& view) {
  for (std::size_t j = 0; j < now_.size(); ++j) {
    double time = 0;
    for (const Window& window : now_)
      if (known(view, window.place, j) != 0) time = std::max(time, window.head) + window.duration;
    raise(head(view, j), time, view.worker);
  }
}

/// Takes the ops that must end by each deadline, and checks whether another op fits among them.
bool Windows::find_edges(const View& view) {
  // The ops with tails of at least some value must end by the deadline less that value. Every distinct tail gives such
  // a set, from the longest tail on, so that the set only grows.
  const std::size_t n = now_.size();
  by_tail_.resize(n);
  std::iota(by_tail_.begin(), by_tail_.end(), 0);
  std::stable_sort(by_tail_.begin(), by_tail_.end(),
                   [&](std::size_t a, std::size_t b) { return now_[a].tail > now_[b].tail; });
  for (std::size_t next = 0; next < n;) {
    const double least_tail = now_[by_tail_[next]].tail;
    while (next < n && now_[by_tail_[next]].tail >= least_tail) now_[by_tail_[next++]].is_inside = true;
    if (!find_edges_of(view, next, deadline_ - least_tail)) return false;
  }
  return true;
}

/// The ops inside, the first `count` by tails, must end by `end`. ends_[p]: earliest end of those from the p-th on,
/// by heads.
bool Windows::find_edges_of(const View& view, std::size_t count, double end) {
  const std::size_t n = now_.size();
  ends_.resize(n + 1);
  sums_.resize(n + 1);
  double sum = 0;
  double all = 0;
  ends_[n] = sums_[n] = 0;
  double longest = 0;
  for (std::size_t p = n; p-- > 0;) {
    const Window& window = now_[p];
    if (window.is_inside) {
      sum += window.duration;
      all = std::max(all, window.head + sum);
    } else {
      longest = std::max(longest, window.duration);
    }
    sums_[p] = sum;
    ends_[p] = all;
  }
  if (all > end + least_) return false;
  if (all + longest <= end + least_) return true;  // ops with later heads are left to decide_pairs
  // An op outside the set that cannot run before or among it must follow it. That holds for each of its members
  // (precede), and the op starts after all of them have ended. The windows change only afterwards, because `all` and
  // the order of heads are those of before.
  later_.clear();
  double ahead = 0;  // largest head of an op so far plus the work from it on
  for (std::size_t p = 0; p < n; ++p) {
    Window& window = now_[p];
    if (window.is_inside) {
      ahead = std::max(ahead, window.head + sums_[p]);
      continue;
    }
    const double together = std::max({ahead + window.duration, window.head + window.duration + sums_[p], ends_[p]});
    if (together <= end + least_) continue;
    for (std::size_t& next = window.followed; next < count; ++next)
      if (!precede(view, now_[by_tail_[next]].place, window.place)) return false;
    later_.emplace_back(window.place, all);
  }
  for (const auto& [i, time] : later_) raise(head(view, i), time, view.worker);
  return true;
}

/// A taker that follows b others needs b + 1 - room ended releasers, among those that may precede it. It starts no
/// earlier than that many could have ended.
void Windows::wait_for_room(const View& view) {
  const auto& places = places_[view.worker];
  const auto takes = [&](std::size_t i) { return view.backwards ? queue(places[i]).releases : queue(places[i]).takes; };
  const auto releases = [&](std::size_t i) {
    return view.backwards ? queue(places[i]).takes : queue(places[i]).releases;
  };
  for (std::size_t x = 0; x < places.size(); ++x) {
    if (!takes(x)) continue;
    std::int64_t needed = 1 - room_[view.worker];
    for (std::size_t i = 0; i < places.size(); ++i) needed += takes(i) && known(view, i, x) != 0 ? 1 : 0;
    if (needed <= 0) continue;
    ends_.clear();
    for (std::size_t y = 0; y < places.size(); ++y)
      if (releases(y) && known(view, x, y) == 0) ends_.push_back(head(view, y) + duration(places[y]));
    const auto count = static_cast<std::size_t>(needed);
    if (ends_.size() < count) {
      raise(head(view, x), kEndless, view.worker);
      continue;
    }
    const auto nth = ends_.begin() + static_cast<std::ptrdiff_t>(count - 1);
    std::nth_element(ends_.begin(), nth, ends_.end());
    raise(head(view, x), *nth, view.worker);
  }
}

std::optional<Precedence> Windows::tightest_choice(const WindowState& state) const {
  std::array<Precedence, 2> best;  // [whether the pair overlaps]
  std::array<double, 2> least = {kEndless, kEndless};
  for (std::size_t w = 0; w < places_.size(); ++w) {
    const auto& places = places_[w];
    const auto& before = state.before[w];
    const std::size_t n = places.size();
    for (std::size_t i = 0; i < n; ++i) {
      for (std::size_t j = i + 1; j < n; ++j) {
        if (before[i * n + j] != 0 || before[j * n + i] != 0) continue;
        const std::size_t a = places[i].op;
        const std::size_t b = places[j].op;
        const double end_a = state.head[a] + duration(places[i]);
        const double end_b = state.head[b] + duration(places[j]);
        const std::size_t overlaps = end_a > state.head[b] && end_b > state.head[a] ? 1 : 0;
        const double a_first = std::max(least_, deadline_ - end_a - duration(places[j]) - state.tail[b]);
        const double b_first = std::max(least_, deadline_ - end_b - duration(places[i]) - state.tail[a]);
        // Slack of Smith and Cheng (AAAI 1993), which prefers pairs whose orders have similar slack.
        const double rank =
            std::min(a_first, b_first) / std::sqrt(std::min(a_first, b_first) / std::max(a_first, b_first));
        if (rank >= least[overlaps]) continue;
        least[overlaps] = rank;
        best[overlaps] = a_first >= b_first ? Precedence{a, b} : Precedence{b, a};
      }
    }
  }
  for (const std::size_t overlaps : {1, 0})
    if (least[overlaps] < kEndless) return best[overlaps];
  return std::nullopt;
}

/// If all pairs are decided, this is the only order left. Before, it is a good guess that may improve the deadline.
Orders Windows::orders_by_head(const WindowState& state) const {
  Orders orders;
  for (const auto& places : places_) {
    std::vector<Place> sorted = places;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [&](const Place& a, const Place& b) { return state.head[a.op] < state.head[b.op]; });
    auto& order = orders.emplace_back();
    for (const Place& place : sorted) order.push_back(place.queue);
  }
  return orders;
}

}  // namespace chimera
