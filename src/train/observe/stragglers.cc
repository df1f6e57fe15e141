#include "train/observe/stragglers.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <utility>

namespace chimera {
namespace {

/// Returns the sums of all other ranks.
OpTimes elsewhere_than(std::size_t rank, const std::vector<OpTimes>& times) {
  std::vector<double> sums(times[rank].numbers().size(), 0);
  for (std::size_t other = 0; other < times.size(); ++other) {
    if (other != rank) std::ranges::transform(sums, times[other].numbers(), sums.begin(), std::plus());
  }
  return OpTimes(std::move(sums));
}

RankComputeTime pace_of(const std::vector<OpTimes>& times, std::size_t rank) {
  RankComputeTime pace{.rank = RankId(static_cast<std::int64_t>(rank)), .seconds = 0, .elsewhere = 0};
  const OpTimes others = elsewhere_than(rank, times);
  for (std::int64_t s = 0; s < others.num_stages(); ++s) {
    for (int k = 0; k < kOpKinds; ++k) {
      const StageId stage(s);
      const auto kind = static_cast<OpKind>(k);
      const double ops = times[rank].count(stage, kind);
      if (ops == 0) continue;
      pace.seconds += ops * times[rank].mean(stage, kind).wall_seconds;
      if (others.count(stage, kind) == 0) pace.elsewhere.reset();
      if (pace.elsewhere) *pace.elsewhere += ops * others.mean(stage, kind).wall_seconds;
    }
  }
  return pace;
}

}  // namespace

std::vector<RankComputeTime> compute_times_of_ranks(const std::vector<OpTimes>& times, std::int64_t steps) {
  std::vector<RankComputeTime> ranks;
  for (std::size_t rank = 0; rank < times.size(); ++rank) {
    RankComputeTime pace = pace_of(times, rank);
    pace.seconds /= static_cast<double>(steps);
    if (pace.elsewhere) *pace.elsewhere /= static_cast<double>(steps);
    ranks.push_back(pace);
  }
  return ranks;
}

std::string straggler_report(const std::vector<RankComputeTime>& ranks, double step_seconds) {
  std::string text = "\nrank  computes, s/step  its ops on other ranks\n";
  std::string slow;
  for (const RankComputeTime& pace : ranks) {
    text += fmt::format("{:4}  {:16.4f}  {:>22}\n", pace.rank.value(), pace.seconds,
                        pace.elsewhere ? fmt::format("{:.4f}", *pace.elsewhere) : "none");
    // A rank with a slow stage is no straggler. It is compared with other ranks at the same ops, which replicas and
    // groups provide.
    if (!pace.elsewhere || pace.seconds < kStragglerRatio * *pace.elsewhere) continue;
    slow += fmt::format(
        "rank {} is slow: its ops take {:.2f} times as long as on other ranks; a step loses up to {:.4f} s to it "
        "({:.1f} %)\n",
        pace.rank.value(), pace.seconds / *pace.elsewhere, pace.lost(), 100 * pace.lost() / step_seconds);
  }
  return text + (slow.empty() ? fmt::format("no rank takes {:.0f} % longer than others for the same ops\n",
                                            100 * (kStragglerRatio - 1))
                              : slow);
}

}  // namespace chimera
