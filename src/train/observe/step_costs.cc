#include "train/observe/step_costs.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "telemetry/run_history.h"

namespace chimera {
namespace {

std::string numbers_of(const std::vector<RankId>& ranks) {
  std::vector<std::int64_t> numbers;
  for (const RankId rank : ranks) numbers.push_back(rank.value());
  return fmt::format("rank{} {}", ranks.size() == 1 ? "" : "s", fmt::join(numbers, ", "));
}

std::vector<RankId> without(std::vector<RankId> ranks, const std::vector<RankId>& others) {
  std::erase_if(ranks, [&](RankId rank) { return std::ranges::find(others, rank) != others.end(); });
  return ranks;
}

}  // namespace

void StepCosts::begin(const std::vector<RankId>& absent, std::int64_t step, double pause) {
  if (!stretches_.empty() && stretches_.back().absent == absent) return;
  stretches_.push_back({.absent = absent, .step = step, .pause = pause, .seconds = {}});
}

void StepCosts::note_step(std::int64_t step, double seconds) {
  if (step <= last_step_) return;
  last_step_ = step;
  stretches_.back().seconds.push_back(seconds);
}

std::string StepCosts::describe() const {
  std::string text;
  if (stretches_.empty()) return text;
  const Stretch& first = stretches_.front();
  for (std::size_t i = 1; i < stretches_.size(); ++i) {
    const Stretch& now = stretches_[i];
    const std::vector<RankId> lost = without(now.absent, stretches_[i - 1].absent);
    const std::vector<RankId> back = without(stretches_[i - 1].absent, now.absent);
    std::string who = lost.empty() ? "" : numbers_of(lost) + " lost";
    if (!back.empty()) who += fmt::format("{}{} back", who.empty() ? "" : ", ", numbers_of(back));
    text += fmt::format("{} in step {}: {:.2f} s until the step ran again", who, now.step, now.pause);
    if (!now.seconds.empty()) {
      const double median = median_of(now.seconds);
      text +=
          fmt::format(", then {:.4f} s a step on {} of {} workers", median, ranks_ - std::ssize(now.absent), ranks_);
      if (first.absent.empty() && !first.seconds.empty()) {
        const double whole = median_of(first.seconds);
        text += fmt::format(", {:.2f} times the {:.4f} s before the first loss", median / whole, whole);
      }
    }
    text += "\n";
  }
  return text;
}

}  // namespace chimera
