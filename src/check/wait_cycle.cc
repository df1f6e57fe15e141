// Two searches for a shortest cycle, for graphs of different form: `Search` for a graph with stored edges,
// `CycleSearch` for the waits of ops, whose edges would be too many to store. Both search breadth-first from one node
// after another, and use the length of the best cycle so far to end each later search early.

#include "check/wait_cycle.h"

#include <algorithm>
#include <limits>
#include <optional>

namespace chimera {
namespace {

constexpr std::uint32_t kNone = std::numeric_limits<std::uint32_t>::max();

// A breadth-first search from each node gives the shortest cycle through it. Each search ends at the depth of the best
// cycle so far, so after the first short cycle the others cost little. The limit on edges bounds the time for graphs
// that have only long cycles.
class Search {
 public:
  explicit Search(const Graph& successors)
      : successors_(successors), alive_(successors.size(), true), from_(successors.size(), kNone) {
    remove_dead_ends();
  }

  std::vector<std::uint32_t> run() {
    for (std::uint32_t node = 0; node < successors_.size(); ++node) {
      if (best_.size() == 1 || (effort_ >= kSearchEffort && !best_.empty())) break;
      if (alive_[node]) search_from(node);
    }
    return best_;
  }

 private:
  /// Removes nodes without live successors, so that every remaining node leads to a cycle.
  void remove_dead_ends() {
    std::vector<std::vector<std::uint32_t>> predecessors(successors_.size());
    std::vector<std::size_t> open(successors_.size());
    std::vector<std::uint32_t> ends;
    for (std::uint32_t node = 0; node < successors_.size(); ++node) {
      open[node] = successors_[node].size();
      if (open[node] == 0) ends.push_back(node);
      for (const std::uint32_t next : successors_[node]) predecessors[next].push_back(node);
    }
    while (!ends.empty()) {
      const std::uint32_t end = ends.back();
      ends.pop_back();
      alive_[end] = false;
      for (const std::uint32_t node : predecessors[end])
        if (--open[node] == 0) ends.push_back(node);
    }
  }

  void search_from(std::uint32_t start) {
    reached_ = {start};
    std::uint32_t last = kNone;
    std::size_t depth = 1;
    std::size_t level_end = 1;
    for (std::size_t i = 0; i < reached_.size() && last == kNone; ++i) {
      if (i == level_end) {
        level_end = reached_.size();
        if (++depth >= best_.size() && !best_.empty()) break;
      }
      if (expand(reached_[i], start)) last = reached_[i];
    }
    // The search ended at a depth below best_.size(), so the new cycle is shorter.
    if (last != kNone) {
      best_.clear();
      for (std::uint32_t node = last; node != start; node = from_[node]) best_.push_back(node);
      best_.push_back(start);
      std::reverse(best_.begin(), best_.end());
    }
    for (const std::uint32_t node : reached_) from_[node] = kNone;
  }

  /// Returns whether an edge leads to the start.
  bool expand(std::uint32_t node, std::uint32_t start) {
    for (const std::uint32_t next : successors_[node]) {
      ++effort_;
      if (next == start) return true;
      if (!alive_[next] || from_[next] != kNone) continue;
      from_[next] = node;
      reached_.push_back(next);
    }
    return false;
  }

  const Graph& successors_;
  std::vector<bool> alive_;
  std::vector<std::uint32_t> from_;  // [node]: predecessor in the search
  std::vector<std::uint32_t> reached_;
  std::vector<std::uint32_t> best_;
  std::size_t effort_ = 0;
};

constexpr std::size_t kNowhere = static_cast<std::size_t>(-1);

// Edges between waits are not stored: a wait for an op leads to all waits of earlier ops of that worker, which are
// quadratically many. Instead, a search keeps per worker how far it has tried the worker's waits (`tried_`, in order),
// so each wait is visited once per search.
class CycleSearch {
 public:
  CycleSearch(const OpTable& table, const std::vector<std::size_t>& visited, Pairs pairs)
      : table_(table),
        visited_(visited),
        pairs_(pairs),
        waits_(visited.size()),
        tried_(visited.size(), 0),
        reach_(visited.size(), kNowhere) {
    for (std::size_t w = 0; w < visited_.size(); ++w) collect_waits(w);
  }

  std::vector<Wait> run() {
    best_ = cycle_of_heads();
    std::size_t longest = 0;
    for (const auto& waits : waits_) longest = std::max(longest, waits.size());
    for (std::size_t i = 0; i < longest; ++i) {
      for (const auto& waits : waits_) {
        if (best_.size() == 1 || effort_ >= kSearchEffort) return best_;
        if (i < waits.size()) search_from(waits[i]);
      }
    }
    return best_;
  }

 private:
  /// A step of a search: all ops up to the input of `wait` on its worker must run first.
  struct Event {
    Wait wait;
    std::size_t before;
    std::size_t depth;
  };

  /// Returns the position of the op or of its pair's first op.
  std::size_t begin(const Place& op) const {
    const auto& ops = table_.schedule().workers[op.worker];
    return op.position > 0 && num_concurrent(ops, op.position - 1, pairs_) > 1 ? op.position - 1 : op.position;
  }
  /// Returns the last position that runs together with the op.
  std::size_t end(const Place& op) const {
    return op.position + num_concurrent(table_.schedule().workers[op.worker], op.position, pairs_) - 1;
  }

  /// Collects the waits of blocked ops, except waits implied by the worker's own order.
  void collect_waits(std::size_t w) {
    const auto& ops = table_.schedule().workers[w];
    for (std::size_t i = visited_[w]; i < ops.size(); ++i) {
      for (const OpIndex input : table_.inputs(ops[i])) {
        if (input == kNoOp) continue;
        const std::size_t worker = table_.worker(input);
        const Place place{worker, input - table_.first(worker)};
        // An input that comes earlier in the worker's own list is no wait: the list runs in order.
        const bool done = place.position < visited_[worker];
        if (!done && (worker != w || place.position > i)) waits_[w].push_back({{w, i}, place});
      }
    }
  }

  // This cycle always exists if workers block each other, and bounds the depth of all searches from the start.
  /// Follows the first waits of blocked workers until a worker repeats. Empty if duplicate or misplaced ops block a
  /// worker that has no wait.
  std::vector<Wait> cycle_of_heads() const {
    std::size_t worker = 0;
    while (worker < waits_.size() && waits_[worker].empty()) ++worker;
    std::vector<std::size_t> place_in_path(waits_.size(), kNowhere);
    std::vector<Wait> path;
    while (worker < waits_.size() && place_in_path[worker] == kNowhere) {
      // The cause is no cycle, but an op that is doubled or misplaced, which other checks report.
      if (waits_[worker].empty()) return {};
      place_in_path[worker] = path.size();
      path.push_back(waits_[worker].front());
      worker = path.back().input.worker;
    }
    if (!path.empty()) path.erase(path.begin(), path.begin() + static_cast<std::ptrdiff_t>(place_in_path[worker]));
    return path;
  }

  void search_from(const Wait& start) {
    events_.clear();
    touched_.clear();
    arrive({start, kNowhere, 1});
    std::optional<std::size_t> closing;
    for (std::size_t e = 0; e < events_.size() && !closing; ++e)
      if (closes(events_[e], start))
        closing = e;
      else if (best_.empty() || events_[e].depth + 1 < best_.size())
        expand(e);
    for (const std::size_t worker : touched_) {
      reach_[worker] = kNowhere;
      tried_[worker] = 0;
    }
    if (closing) best_ = path_to(*closing);
  }

  bool closes(const Event& event, const Wait& start) const {
    // The input cannot run before the op of the first wait if it is this op or comes after it.
    return event.wait.input.worker == start.op.worker && end(event.wait.input) >= begin(start.op);
  }

  void arrive(const Event& event) {
    const Place& place = event.wait.input;
    std::size_t& reach = reach_[place.worker];
    // An earlier event, which is not deeper, leads to all waits up to here.
    if (reach != kNowhere && reach >= end(place)) return;
    if (reach == kNowhere) touched_.push_back(place.worker);
    reach = end(place);
    events_.push_back(event);
  }

  void expand(std::size_t e) {
    const Event event = events_[e];
    const auto& waits = waits_[event.wait.input.worker];
    std::size_t& tried = tried_[event.wait.input.worker];
    for (; tried < waits.size() && begin(waits[tried].op) <= end(event.wait.input); ++tried) {
      ++effort_;
      arrive({waits[tried], e, event.depth + 1});
    }
  }

  std::vector<Wait> path_to(std::size_t e) const {
    std::vector<Wait> path;
    for (; e != kNowhere; e = events_[e].before) path.push_back(events_[e].wait);
    std::reverse(path.begin(), path.end());
    return path;
  }

  const OpTable& table_;
  const std::vector<std::size_t>& visited_;
  Pairs pairs_;
  std::vector<std::vector<Wait>> waits_;  // [worker], ascending by op
  std::vector<Wait> best_;
  std::size_t effort_ = 0;
  // Reset by search_from():
  std::vector<Event> events_;
  std::vector<std::size_t> touched_;
  std::vector<std::size_t> tried_;  // [worker]: waits tried
  std::vector<std::size_t> reach_;  // [worker]: last op that must run first
};

}  // namespace

std::vector<std::uint32_t> shortest_cycle(const Graph& successors) { return Search(successors).run(); }

std::vector<Wait> shortest_wait_cycle(const OpTable& table, const std::vector<std::size_t>& visited, Pairs pairs) {
  return CycleSearch(table, visited, pairs).run();
}

}  // namespace chimera
