#include "search/extra_copies.h"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "core/invariant.h"

namespace chimera {
namespace {

struct CopyChoice {
  std::vector<ExtraCopy> copies;
  std::int64_t bound = 0;
  std::int64_t busy = 0;  // Routes::busiest: workers that reach the bound
};

bool has_lower_bound(const CopyChoice& a, const CopyChoice& b) {
  return std::tuple(a.bound, a.busy, a.copies.size()) < std::tuple(b.bound, b.busy, b.copies.size());
}

class CopySearch {
 public:
  CopySearch(const DetourTask& task, const std::vector<std::int64_t>& room)
      : task_(task), room_(room), all_(in_all_groups(task.healthy, task.groups)), lost_(all_.workers.size(), false) {
    for (const WorkerId worker : task.lost) lost_[worker.index()] = true;
    for (const auto& row : all_.placement.worker_of) {
      for (std::size_t s = 0; s < row.size(); ++s) {
        if (lost_[row[s].index()]) lacking_.insert(StageId(static_cast<std::int64_t>(s)));
        held_.insert({StageId(static_cast<std::int64_t>(s)), row[s]});
      }
    }
  }

  /// Returns the best choices of 0 to `most` copies.
  std::vector<CopyChoice> run(std::int64_t most) {
    std::vector<CopyChoice> beam = {rated({})};
    std::vector<CopyChoice> found = beam;
    for (std::int64_t n = 0; n < most; ++n) {
      std::vector<CopyChoice> next;
      for (const CopyChoice& choice : beam) extend(choice, next);
      keep_best(next);
      if (next.empty()) break;
      found.insert(found.end(), next.begin(), next.end());
      beam = std::move(next);
    }
    return found;
  }

 private:
  static constexpr std::size_t kBeam = 8;

  static void keep_best(std::vector<CopyChoice>& choices) {
    std::ranges::stable_sort(choices, has_lower_bound);
    if (choices.size() > kBeam) choices.resize(kBeam);
  }

  [[nodiscard]] CopyChoice rated(std::vector<ExtraCopy> copies) const {
    const Routes routes =
        find_routes({.healthy = all_, .lost = lost_, .extra_copies = copies, .block_size = task_.block_size});
    return {.copies = std::move(copies), .bound = routes.bound, .busy = routes.busiest};
  }

  void extend(const CopyChoice& choice, std::vector<CopyChoice>& next) const {
    for (const StageId stage : lacking_) {
      for (std::size_t w = 0; w < lost_.size(); ++w) {
        const ExtraCopy copy{stage, WorkerId(static_cast<std::int64_t>(w))};
        if (lost_[w] || held_.contains({stage, copy.worker}) || !has_room(choice.copies, copy)) continue;
        // Each set of copies is tried in one order.
        if (!choice.copies.empty() && !(std::pair(choice.copies.back().stage, choice.copies.back().worker) <
                                        std::pair(copy.stage, copy.worker))) {
          continue;
        }
        auto copies = choice.copies;
        copies.push_back(copy);
        next.push_back(rated(std::move(copies)));
      }
    }
  }

  [[nodiscard]] bool has_room(const std::vector<ExtraCopy>& copies, const ExtraCopy& copy) const {
    if (room_.empty()) return true;
    const auto here = std::ranges::count(copies, copy.worker, &ExtraCopy::worker);
    return here < room_[copy.worker.index()];
  }

  const DetourTask& task_;
  const std::vector<std::int64_t>& room_;
  Schedule all_;
  std::vector<bool> lost_;
  std::set<StageId> lacking_;                    // Stages of lost workers
  std::set<std::pair<StageId, WorkerId>> held_;  // Copies of the healthy schedule
};

}  // namespace

BalancedDetours balance_detours(DetourTask task, std::int64_t most, const std::vector<std::int64_t>& room) {
  require_invariant(task.extra_copies.empty(), "balance_detours: the task has extra copies");
  BalancedDetours best{.detours = make_detours(task), .copies = {}};
  for (CopyChoice& choice : CopySearch(task, room).run(most)) {
    if (choice.copies.empty() || static_cast<double>(choice.bound) >= best.detours.makespan) continue;
    task.extra_copies = choice.copies;
    Detours detours = make_detours(task);
    if (detours.makespan < best.detours.makespan) best = {std::move(detours), std::move(choice.copies)};
  }
  return best;
}

}  // namespace chimera
