// fold() looks for maps of the workers that move replica 0 onto each other replica (images_of_workers(),
// form_a_symmetry()). Workers that a map moves onto each other form an orbit, and each orbit becomes one joined worker.
// fold_orders() and unfold() translate orders of ops between the whole problem and the folded one.

#include "search/problem_forms.h"

#include <limits>

#include "search/instance.h"

namespace chimera {
namespace {

constexpr std::size_t kUnknown = std::numeric_limits<std::size_t>::max();

/// images[r][w]: the worker that takes w's place when replica 0 moves onto replica r. Empty if that is not one-to-one.
std::vector<std::vector<std::size_t>> images_of_workers(const SearchLayout& layout) {
  std::vector<std::vector<std::size_t>> images;
  const auto workers = static_cast<std::size_t>(layout.workers);
  const auto& base = layout.placement.worker_of.front();
  for (const auto& row : layout.placement.worker_of) {
    auto& image = images.emplace_back(workers, kUnknown);
    std::vector<bool> taken(workers, false);
    for (std::size_t s = 0; s < row.size(); ++s) {
      std::size_t& to = image[base[s].index()];
      if (to == row[s].index()) continue;
      if (to != kUnknown || taken[row[s].index()]) return {};
      to = row[s].index();
      taken[to] = true;
    }
    if (std::find(image.begin(), image.end(), kUnknown) != image.end()) return {};
  }
  return images;
}

/// Returns whether each map moves every replica onto a replica, and only the first leaves a worker in place.
bool form_a_symmetry(const SearchLayout& layout, const std::vector<std::vector<std::size_t>>& images) {
  const auto& rows = layout.placement.worker_of;
  for (std::size_t r = 1; r < images.size(); ++r) {
    for (std::size_t w = 0; w < images[r].size(); ++w)
      if (images[r][w] == w) return false;
    for (const auto& row : rows) {
      std::vector<WorkerId> moved;
      for (const WorkerId worker : row) moved.emplace_back(static_cast<std::int64_t>(images[r][worker.index()]));
      if (std::find(rows.begin(), rows.end(), moved) == rows.end()) return false;
    }
  }
  return true;
}

/// [worker]: index of its orbit, the workers whose place it may take.
std::vector<std::size_t> orbits(const std::vector<std::vector<std::size_t>>& images) {
  std::vector<std::size_t> orbit(images.front().size(), kUnknown);
  std::size_t next = 0;
  for (std::size_t w = 0; w < orbit.size(); ++w) {
    if (orbit[w] != kUnknown) continue;
    for (const auto& image : images) orbit[image[w]] = next;
    ++next;
  }
  return orbit;
}

/// Returns whether the problem itself has the symmetry: equal workers, links and work of micro-batches, equally many
/// micro-batches per replica, and equal memory on workers that are joined.
bool replicas_are_alike(const SearchProblem& problem, const std::vector<std::size_t>& orbit) {
  if (!workers_are_alike(problem) || !problem.costs.micro_batches.empty()) return false;
  const auto& micro_batches = problem.layout.micro_batches;
  for (const auto& ids : micro_batches)
    if (ids.size() != micro_batches.front().size()) return false;
  for (const InFlightLimit& limit : problem.limits) {
    for (std::size_t v = 0; v < orbit.size(); ++v) {
      for (std::size_t w = 0; w < v; ++w)
        if (orbit[v] == orbit[w] && limit.room_of_worker[v] != limit.room_of_worker[w]) return false;
    }
  }
  return true;
}

/// Returns replica 0's part of the problem on one worker per orbit. A joined worker runs replica 0's ops of all its
/// real workers, which is exactly what each real worker runs of all replicas.
SearchProblem of_first_replica(const SearchProblem& problem, const std::vector<std::size_t>& orbit) {
  SearchProblem first = problem;
  const std::size_t workers = *std::max_element(orbit.begin(), orbit.end()) + 1;
  first.layout.workers = static_cast<std::int64_t>(workers);
  first.layout.placement.worker_of.resize(1);
  first.layout.micro_batches.resize(1);
  for (WorkerId& worker : first.layout.placement.worker_of.front())
    worker = WorkerId(static_cast<std::int64_t>(orbit[worker.index()]));
  for (InFlightLimit& limit : first.limits) {
    std::vector<double> room(workers);
    for (std::size_t w = 0; w < orbit.size(); ++w) room[orbit[w]] = limit.room_of_worker[w];
    limit.room_of_worker = room;
  }
  return first;
}

/// Keeps delays and durations of the real workers: neighboring stages may share a joined worker but not a real one.
Instance joined(const SearchProblem& first, const SearchProblem& problem) {
  Instance instance = make_instance(first);
  const Instance whole = make_instance(problem);
  for (std::size_t queue = 0; queue < instance.queues.size(); ++queue) {
    instance.queues[queue].delay = whole.queues[queue].delay;
    instance.queues[queue].duration = whole.queues[queue].duration;
  }
  return instance;
}

}  // namespace

std::optional<FoldedProblem> fold(const SearchProblem& problem) {
  if (problem.layout.placement.num_replicas() < 2) return std::nullopt;
  const auto images = images_of_workers(problem.layout);
  if (images.empty() || !form_a_symmetry(problem.layout, images)) return std::nullopt;
  const auto orbit = orbits(images);
  if (!replicas_are_alike(problem, orbit)) return std::nullopt;
  const SearchProblem first = of_first_replica(problem, orbit);
  if (find_shortage(first)) return std::nullopt;
  return FoldedProblem{joined(first, problem), orbit};
}

Orders fold_orders(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders) {
  const auto queues = static_cast<QueueIndex>(kQueuesOfChain * problem.layout.stages);
  Orders joined(static_cast<std::size_t>(folded.instance.workers));
  for (std::size_t w = 0; w < orders.size(); ++w) {
    auto& order = joined[folded.worker[w]];
    if (!order.empty()) continue;
    for (const QueueIndex queue : orders[w]) order.push_back(queue % queues);
  }
  return joined;
}

Orders unfold(const SearchProblem& problem, const FoldedProblem& folded, const Orders& orders) {
  const auto stages = static_cast<std::size_t>(problem.layout.stages);
  const auto& rows = problem.layout.placement.worker_of;
  Orders unfolded(static_cast<std::size_t>(problem.layout.workers));
  for (std::size_t w = 0; w < unfolded.size(); ++w) {
    for (const QueueIndex queue : orders[folded.worker[w]]) {
      const auto stage = static_cast<std::size_t>(queue / kQueuesOfChain);
      std::size_t replica = 0;
      // exists: the symmetry moves a holder of the stage to w
      while (rows[replica][stage].index() != w) ++replica;
      unfolded[w].push_back(static_cast<QueueIndex>(kQueuesOfChain * replica * stages) + queue);
    }
  }
  return unfolded;
}

void replace_if_better(Solution& best, const Solution& other) {
  if (other.makespan < best.makespan) best = other;
}

bool note(ParetoFront& front, const ProblemForms& forms, const Instance& instance, const Solution& found) {
  const std::vector<double> size(instance.replica.size(), units_of_slice(forms.problem.layout));
  double peak = 0;
  for (const auto& order : found.orders) peak = std::max(peak, peak_of(instance, size, order));
  if (found.makespan == kDeadlocked || !front.admits(found.makespan, peak)) return false;
  ParetoSolution find{found, peak};
  if (&instance != &forms.whole) find.orders = unfold(forms.problem, *forms.folded, found.orders);
  front.add(std::move(find));
  return front.solutions().front().makespan == found.makespan;
}

}  // namespace chimera
