#include "search/extra_copies.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

namespace chimera {
namespace {

struct CopyChoice {
  std::vector<ExtraCopy> copies;
  double bound = 0;
  std::int64_t exposed = 0;  // exposed_stages()
  std::int64_t busy = 0;     // Routes::busiest: workers that reach the bound
};

bool has_lower_bound(const CopyChoice& a, const CopyChoice& b) {
  return std::tuple(a.bound, a.exposed, a.busy, a.copies.size()) <
         std::tuple(b.bound, b.exposed, b.busy, b.copies.size());
}

/// Returns how many stages only one worker holds.
std::int64_t exposed_stages(const Placement& placement) {
  return std::ranges::count_if(stage_groups(placement), [](const auto& holders) { return holders.size() == 1; });
}

// A beam search: the number of sets of copies grows with their size too fast to try all. A set is rated by the bound
// of its routes, which takes far less time than ordering its ops.
class CopySearch {
 public:
  CopySearch(const DetourTask& task, const CopiesFit& fits) : task_(task), fits_(fits) {
    for (const auto& row : all_.placement.worker_of) {
      for (std::size_t s = 0; s < row.size(); ++s) {
        if (speeds_[row[s].index()] < 1) lacking_.insert(StageId(static_cast<std::int64_t>(s)));
        held_.insert({StageId(static_cast<std::int64_t>(s)), row[s]});
      }
    }
    for (const ExtraCopy& copy : task.extra_copies) held_.insert({copy.stage, copy.worker});
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
    std::vector<ExtraCopy> all = task_.extra_copies;
    all.insert(all.end(), copies.begin(), copies.end());
    const Routes routes = find_routes({.healthy = all_,
                                       .speeds = speeds_,
                                       .times = task_.times,
                                       .extra_copies = std::move(all),
                                       .block_size = task_.block_size});
    return {.copies = std::move(copies),
            .bound = routes.bound,
            .exposed = exposed_stages(routes.placement),
            .busy = routes.busiest};
  }

  void extend(const CopyChoice& choice, std::vector<CopyChoice>& next) const {
    for (const StageId stage : lacking_) {
      for (std::size_t w = 0; w < speeds_.size(); ++w) {
        const ExtraCopy copy{stage, WorkerId(static_cast<std::int64_t>(w))};
        if (speeds_[w] < 1 || held_.contains({stage, copy.worker})) continue;
        // Each set of copies is tried in one order.
        if (!choice.copies.empty() &&
            !(std::pair(choice.copies.back().stage, choice.copies.back().worker) < std::pair(copy.stage, copy.worker)))
          continue;
        auto copies = choice.copies;
        copies.push_back(copy);
        if (fits_ && !fits_(copies)) continue;
        next.push_back(rated(std::move(copies)));
      }
    }
  }

  const DetourTask& task_;
  const CopiesFit& fits_;
  Schedule all_ = in_all_groups(task_.healthy, task_.groups);
  std::vector<double> speeds_ = worker_speeds(task_);
  std::set<StageId> lacking_;                    // Stages of lost and slow workers
  std::set<std::pair<StageId, WorkerId>> held_;  // Copies of the healthy schedule and of the task
};

}  // namespace

// Copies cost memory and a transfer of weights. So a choice must have a better bound before its ops are ordered, and
// a better makespan before it is taken.
BalancedDetours balance_detours(DetourTask task, std::int64_t most, const CopiesFit& fits) {
  const auto merit = [](const Detours& detours) {
    return std::pair(detours.makespan, exposed_stages(detours.schedule.placement));
  };
  BalancedDetours best{.detours = make_detours(task), .copies = {}};
  const std::vector<CopyChoice> choices = CopySearch(task, fits).run(most);
  const std::vector<ExtraCopy> before = task.extra_copies;
  for (const CopyChoice& choice : choices) {
    if (choice.copies.empty() || std::pair(choice.bound, choice.exposed) >= merit(best.detours)) continue;
    task.extra_copies = before;
    task.extra_copies.insert(task.extra_copies.end(), choice.copies.begin(), choice.copies.end());
    Detours detours = make_detours(task);
    if (merit(detours) < merit(best.detours)) best = {std::move(detours), choice.copies};
  }
  return best;
}

}  // namespace chimera
