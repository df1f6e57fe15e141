// Micro-batches of unequal work in the places of an unchanged schedule: the table of docs/moving.md.

#include "simulate/permute.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iostream>
#include <numbers>

#include "core/error.h"
#include "core/random.h"
#include "support/schedules.h"

namespace chimera {
namespace {

Schedule placed_schedule(const std::string& name, std::int64_t d, std::int64_t n) {
  return find_generator(name).generate(default_shape(find_generator(name), d, n));
}

/// The work of `n` windows of lognormal documents (median 1,480 tokens, sigma 1.6), the last one cut at the window's
/// end; attention has part `a` of an op if one document fills the window. The mean is 1.
std::vector<double> drawn_windows(std::int64_t n, double window, double a, std::uint64_t seed) {
  const CounterRandom random(seed, "documents");
  std::uint64_t next = 0;
  const auto uniform = [&] { return (static_cast<double>(random.below(next++, 1 << 30)) + 0.5) / (1 << 30); };
  std::vector<double> work;
  double sum = 0;
  for (std::int64_t i = 0; i < n; ++i) {
    double squares = 0;
    for (double left = window; left > 0;) {
      const double normal = std::sqrt(-2 * std::log(uniform())) * std::cos(2 * std::numbers::pi * uniform());
      const double length = std::min(left, std::max(1.0, std::round(1480 * std::exp(1.6 * normal))));
      squares += length * length;
      left -= length;
    }
    work.push_back(1 - a + a * squares / (window * window));
    sum += work.back();
  }
  for (double& each : work) each *= static_cast<double>(n) / sum;
  return work;
}

TEST(PermuteTest, PermutedDocumentsReachTheTable) {
  struct Row {
    double window, a;
    std::vector<double> permuted;  // Of 1f1b, zb-h1, interleaved-zb, chimera-zb, from other draws
  };
  constexpr int kDraws = 12;
  for (const Row& row : {Row{8192, 0.25, {0.99, 0.99, 1.01, 1.03}}, Row{32768, 0.57, {1.03, 1.00, 1.05, 1.11}},
                         Row{131072, 0.84, {1.10, 1.05, 1.11, 1.19}}}) {
    const char* names[] = {"1f1b", "zb-h1", "interleaved-zb", "chimera-zb"};
    for (std::size_t k = 0; k < 4; ++k) {
      const Schedule schedule = placed_schedule(names[k], 8, 16);
      CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
      const double even = simulate(schedule, costs).makespan;
      double drawn = 0;
      double permuted = 0;
      for (std::uint64_t seed = 0; seed < kDraws; ++seed) {
        const std::vector<double> work = drawn_windows(16, row.window, row.a, seed);
        costs.micro_batches = work;
        drawn += simulate(schedule, costs).makespan / even / kDraws;
        costs.micro_batches = work_of_places(work, permuted_micro_batches(schedule, costs));
        permuted += simulate(schedule, costs).makespan / even / kDraws;
      }
      std::cout << row.window << " " << names[k] << ": drawn " << drawn << ", permuted " << permuted << '\n';
      EXPECT_LE(permuted, row.permuted[k] + 0.01) << names[k] << " " << row.window;
    }
  }
}

TEST(PermuteTest, EverySynchronousScheduleIsPermutedAndNeverSlower) {
  for (const Generator& generator : generators()) {
    const PipelineShape shape = default_shape(generator, 4, 8);
    if (generator.find_shape_error(shape)) continue;
    const Schedule schedule = generator.generate(shape);
    CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2), 0.1);
    costs.micro_batches = drawn_windows(schedule.micro_batches, 32768, 0.57, 5);
    if (!generator.synchronous) {
      EXPECT_THROW((void)permuted_micro_batches(schedule, costs), ConfigError);
      continue;
    }
    const std::vector<std::int64_t> places = permuted_micro_batches(schedule, costs);
    std::vector<std::int64_t> sorted = places;
    std::ranges::sort(sorted);
    for (std::size_t i = 0; i < sorted.size(); ++i) ASSERT_EQ(sorted[i], static_cast<std::int64_t>(i));
    CostModel permuted = costs;
    permuted.micro_batches = work_of_places(costs.micro_batches, places);
    EXPECT_LE(simulate(schedule, permuted).makespan, simulate(schedule, costs).makespan) << generator.name;
    EXPECT_EQ(permuted_micro_batches(schedule, costs), places);
  }
}

TEST(PermuteTest, EqualWorkStaysInPlace) {
  const Schedule schedule = placed_schedule("1f1b", 2, 3);
  CostModel costs = CostModel::uniform(schedule, testing::costs(1, 2));
  EXPECT_THAT(permuted_micro_batches(schedule, costs), ::testing::ElementsAre(0, 1, 2));
  costs.micro_batches = {2, 2, 2};
  EXPECT_THAT(permuted_micro_batches(schedule, costs), ::testing::ElementsAre(0, 1, 2));
}

}  // namespace
}  // namespace chimera
