#include "train/observe/step_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "core/mapped.h"
#include "telemetry/run_history.h"

namespace chimera {
namespace {

std::string numbers_of(const std::vector<RankId>& ranks) {
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(numbers_of_ids(ranks), ", "));
}

template <class Item>
std::vector<Item> without(std::vector<Item> items, const std::vector<Item>& others) {
  std::erase_if(items, [&](const Item& item) { return std::ranges::find(others, item) != others.end(); });
  return items;
}

/// Describes the copies that `now` has and `before` has not.
std::string copies_of(const RunChange& now, const RunChange& before) {
  const auto copies = mapped(without(now.extra_copies, before.extra_copies), [](const GroupHolder& copy) {
    return fmt::format("stage {} to rank {}", copy.group.value(), copy.rank.value());
  });
  return copies.empty() ? "" : fmt::format("copied {}", fmt::join(copies, ", "));
}

}  // namespace

void StepCosts::begin(const RunChange& change, std::int64_t step, double pause, const std::string& order) {
  // Nothing has changed, for example because a lost rank was replaced.
  if (!stretches_.empty() && stretches_.back().change == change) return;
  stretches_.push_back({.change = change, .step = step, .pause = pause, .order = order, .seconds = {}});
}

void StepCosts::note_step(std::int64_t step, double seconds) {
  // A step that is repeated after a loss was counted at its first end, if it had one.
  if (step <= last_step_) return;
  last_step_ = step;
  stretches_.back().seconds.push_back(seconds);
}

std::string StepCosts::describe() const {
  std::string text;
  if (stretches_.empty()) return text;
  const Stretch& first = stretches_.front();
  // Each stretch is compared with the one before: ranks that are lost or back, and copies of stages.
  const bool loses =
      std::ranges::any_of(stretches_, [](const Stretch& stretch) { return !stretch.change.lost.empty(); });
  for (std::size_t i = 1; i < stretches_.size(); ++i) {
    const Stretch& now = stretches_[i];
    const RunChange& before = stretches_[i - 1].change;
    const std::vector<RankId> lost = without(now.change.lost, before.lost);
    const std::vector<RankId> back = without(before.lost, now.change.lost);
    std::vector<std::string> news;
    if (!lost.empty()) news.push_back(numbers_of(lost) + " lost");
    if (!back.empty()) news.push_back(numbers_of(back) + " back");
    if (std::string copies = copies_of(now.change, before); !copies.empty()) news.push_back(std::move(copies));
    if (!now.order.empty()) news.push_back(fmt::format("order changed ({})", now.order));
    const bool has_equal_speeds = now.change.factors == before.factors && now.change.delays == before.delays;
    if (news.empty()) news.emplace_back(has_equal_speeds ? "copies dropped" : "order changed");
    text += fmt::format("{} in step {}: {:.2f} s until the step ran{}", fmt::join(news, ", "), now.step, now.pause,
                        lost.empty() && back.empty() ? "" : " again");
    if (!now.seconds.empty()) {
      const double median = median_of(now.seconds);
      text += fmt::format(", then {:.4f} s a step on {} of {} workers", median, ranks_ - std::ssize(now.change.lost),
                          ranks_);
      if (first.change.lost.empty() && !first.seconds.empty()) {
        const double whole = median_of(first.seconds);
        text += fmt::format(", {:.2f} times the {:.4f} s before the first {}", median / whole, whole,
                            loses ? "loss" : "change");
      }
    }
    text += "\n";
  }
  return text;
}

}  // namespace chimera
