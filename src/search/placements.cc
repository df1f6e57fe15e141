#include "search/placements.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <set>
#include <utility>

#include "core/mapped.h"
#include "core/reject.h"
#include "search/budget.h"

namespace chimera {
namespace {

using Row = std::vector<std::int64_t>;  // [stage]: worker
using Rows = std::vector<Row>;          // [replica]

/// Renumbers workers in order of appearance.
Rows renamed(const Rows& rows, std::size_t workers) {
  std::vector<std::int64_t> names(workers, -1);
  std::int64_t next = 0;
  Rows result = rows;
  for (Row& row : result) {
    for (std::int64_t& worker : row) {
      std::int64_t& name = names[static_cast<std::size_t>(worker)];
      if (name < 0) name = next++;
      worker = name;
    }
  }
  return result;
}

// Workers are alike, and so are replicas with equally many micro-batches. Of the placements that differ only in their
// names, the search tries one: the smallest in lexicographic order.
class Enumeration {
 public:
  Enumeration(std::int64_t workers, std::int64_t chunks, std::vector<std::int64_t> dealt)
      : workers_(workers),
        chunks_(chunks),
        dealt_(std::move(dealt)),
        rows_(dealt_.size(), Row(static_cast<std::size_t>(workers * chunks))) {}

  std::set<Rows> run() {
    place(0, 0, 0, std::vector<std::int64_t>(static_cast<std::size_t>(workers_), 0));
    return std::move(found_);
  }

 private:
  /// `held` counts the stages of this replica per worker. `named` is the number of workers with a stage of any replica.
  /// Workers without stages are interchangeable, so only the first is tried.
  void place(std::size_t replica, std::size_t stage, std::int64_t named, std::vector<std::int64_t> held) {
    if (stage == rows_[replica].size()) {
      if (replica + 1 == rows_.size()) return keep();
      return place(replica + 1, 0, named, std::vector<std::int64_t>(held.size(), 0));
    }
    for (std::int64_t worker = 0; worker < std::min(named + 1, workers_); ++worker) {
      std::int64_t& count = held[static_cast<std::size_t>(worker)];
      if (count == chunks_) continue;
      ++count;
      rows_[replica][stage] = worker;
      place(replica, stage + 1, std::max(named, worker + 1), held);
      --count;
    }
  }

  /// Keeps the smallest of all equivalent placements.
  void keep() {
    std::vector<std::size_t> order(rows_.size());
    std::iota(order.begin(), order.end(), 0);
    Rows least = rows_;
    do {
      Rows permuted;
      for (std::size_t r = 0; r < order.size(); ++r) {
        // Replicas trade places only if they have equally many micro-batches.
        if (dealt_[order[r]] != dealt_[r]) break;
        permuted.push_back(rows_[order[r]]);
      }
      if (permuted.size() < rows_.size()) continue;
      least = std::min(least, renamed(permuted, static_cast<std::size_t>(workers_)));
    } while (std::next_permutation(order.begin(), order.end()));
    found_.insert(std::move(least));
    if (found_.size() <= kMaxPlacements) return;
    reject("search: --placement any has more than {} ways to place {} replicas of {} stages on {} workers; use fewer",
           kMaxPlacements, rows_.size(), workers_ * chunks_, workers_);
  }

  std::int64_t workers_;
  std::int64_t chunks_;
  std::vector<std::int64_t> dealt_;  // [replica]: number of its micro-batches
  Rows rows_;
  std::set<Rows> found_;
};

Placement placement_of(const Rows& rows) {
  Placement placement;
  for (const Row& row : rows) placement.worker_of.emplace_back(row.begin(), row.end());
  return placement;
}

class Rounds {
 public:
  Rounds(const std::vector<SearchProblem>& problems, const std::function<std::vector<Schedule>(std::size_t)>& starts,
         const SearchOptions& options)
      : problems_(problems), starts_(starts), options_(options), bounds_(problems.size(), 0) {}

  PlacementSearch run() {
    std::vector<std::size_t> left(problems_.size());
    std::iota(left.begin(), left.end(), 0);
    // Successive halving with a quarter kept: each round has as much time as the others for fewer placements, so the
    // best ones get most of it.
    const int rounds = 1 + static_cast<int>(std::ceil(std::log(static_cast<double>(left.size())) / std::log(kKept)));
    for (int round = 0; round < rounds && !left.empty(); ++round) {
      search_each(left, 1.0 / rounds);
      std::erase_if(left, [&](std::size_t i) { return is_ruled_out(i); });
      std::ranges::stable_sort(left, {}, [&](std::size_t i) { return makespans_.at(i); });
      const std::size_t kept =
          std::max(std::min<std::size_t>(left.size(), 1), left.size() / static_cast<std::size_t>(kKept));
      left.erase(left.begin() + static_cast<std::ptrdiff_t>(kept), left.end());
    }
    return result();
  }

 private:
  static constexpr double kKept = 4;  // one of this many placements enters the next round

  void search_each(std::vector<std::size_t>& left, double share) {
    SearchOptions part = options_;
    const double each = share / static_cast<double>(left.size());
    if (part.seconds) *part.seconds *= each;
    if (part.iterations)
      part.iterations = std::max<std::int64_t>(1, std::llround(each * static_cast<double>(*part.iterations)));
    // Progress of one placement would look like that of the whole search. take() reports after each.
    part.progress = [](const SearchProgress&) {};
    std::erase_if(left, [&](std::size_t i) {
      if (best_ && is_ruled_out(i)) return true;
      return !search_one(i, part);
    });
  }

  /// Returns whether the placement has enough memory.
  bool search_one(std::size_t i, const SearchOptions& options) {
    try {
      take(i, search(problems_[i], starts_(i), options));
      return true;
      // One micro-batch does not fit with this placement. Another placement may spread its stages better.
    } catch (const ConfigError&) {
      bounds_[i] = std::numeric_limits<double>::infinity();
      if (++without_room_ == problems_.size()) throw;
      return false;
    }
  }

  void take(std::size_t i, SearchResult found) {
    // Each round searches the placement anew, so its bound may be lower than that of an earlier round.
    bounds_[i] = std::max(bounds_[i], found.lower_bound);
    double& makespan = makespans_.try_emplace(i, found.makespan).first->second;
    makespan = std::min(makespan, found.makespan);
    if (!best_ || found.makespan < best_->makespan) {
      best_ = std::move(found);
      best_index_ = i;
    }
    if (options_.progress) options_.progress({clock_.seconds(), best_->makespan, least_bound(), best_->origin});
  }

  [[nodiscard]] double least_bound() const { return std::min(*std::ranges::min_element(bounds_), best_->makespan); }
  [[nodiscard]] bool is_ruled_out(std::size_t i) const { return bounds_[i] >= best_->makespan * (1 - kRounding); }

  PlacementSearch result() {
    PlacementSearch found{std::move(*best_), best_index_};
    found.result.set_lower_bound(*std::ranges::min_element(bounds_));
    return found;
  }

  const std::vector<SearchProblem>& problems_;
  const std::function<std::vector<Schedule>(std::size_t)>& starts_;
  const SearchOptions& options_;
  Budget clock_{std::nullopt, std::nullopt};
  std::vector<double> bounds_;               // [placement]; infinite without enough memory
  std::map<std::size_t, double> makespans_;  // [placement], if searched
  std::optional<SearchResult> best_;
  std::size_t best_index_ = 0;
  std::size_t without_room_ = 0;
};

}  // namespace

std::vector<SearchLayout> all_layouts(const PipelineShape& shape) {
  require_searchable(shape, shape.chunks);
  if (shape.pipelines < 1 || shape.pipelines > shape.micro_batches) {
    reject("search: --pipelines must be from 1 to N = {} for --placement any, not {}", shape.micro_batches,
           shape.pipelines);
  }
  const auto dealt = assign_round_robin(shape.micro_batches, shape.pipelines);
  const auto counts = mapped<std::int64_t>(dealt, [](const auto& ids) { return std::ssize(ids); });
  return mapped(Enumeration(shape.stages, shape.chunks, counts).run(), [&](const Rows& rows) {
    return SearchLayout{shape.stages, shape.stages * shape.chunks, placement_of(rows), dealt, shape.slices};
  });
}

void require_equal_links(const std::vector<SearchProblem>& problems) {
  if (std::ranges::all_of(problems, workers_are_alike)) return;
  throw ConfigError(
      "search: --placement any assumes equal workers, but the links or the workers of --costs differ; name a "
      "placement");
}

PlacementSearch search_placements(const std::vector<SearchProblem>& problems,
                                  const std::function<std::vector<Schedule>(std::size_t)>& starts,
                                  const SearchOptions& options) {
  return Rounds(problems, starts, options).run();
}

}  // namespace chimera
