// Predictions of the paper's own tables (SC'21, figures 9 and 13).
//
// Assumptions that the paper does not state: a gigabyte is 10^9 bytes and a P100 has 16 of them; attention's kernels of
// 2020 keep 13 bytes for each head and pair of tokens (kScoreBytes). Fitted: bytes per parameter, a base and one factor
// of activations on Chimera's three maxima of BERT-48; step times by the profile's own fit (fit_test.cc), or by two
// scalars of links on two of figure 13's configurations.

#include "paper/paper_tables.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "plan/layer_times.h"
#include "regression/fit.h"
#include "support/paths.h"

namespace chimera {
namespace {

constexpr double kWithin = 0.1;

MachineProfile p100() { return read_machine(testing::source_path("/machines/p100-aries.json")); }

void expect_within(double predicted, double measured, const std::string& what) {
  EXPECT_LE(std::abs(predicted / measured - 1), kWithin) << what << ": " << predicted << " for " << measured;
}

/// The shipped profile without its fit: published times of a block, a head at its FLOP rate, links without latency.
MachineProfile published_p100() {
  MachineProfile machine = p100();
  const LayerTime block = layer_time(machine, find_model("bert-48"), LayerKind::Block, {.micro_batch_size = 8});
  machine = with_scalar(machine, FitScalar::Layers, 4.50e-3 / block.forward);
  for (LinkProfile* links : {&machine.point_to_point, &machine.all_reduce})
    links->within_node.alpha = links->between_nodes.alpha = 0;
  machine.block_launch = 0;
  return machine;
}

enum class StepModel { EquationOne, SumsAfterOps, OverlappedSums };

/// Sequences per second of the rows of figure 13, with seconds per byte sent and summed fitted to the first and last.
class FittedLinks {
 public:
  explicit FittedLinks(StepModel model) : model_(model) {}

  [[nodiscard]] std::vector<double> run() const {
    const auto summed_for = [this](double sent) {
      return solve([&](double summed) { return speeds(sent, summed)[3]; }, figure_13()[3].measured);
    };
    const double sent = solve([&](double each) { return speeds(each, summed_for(each))[0]; }, figure_13()[0].measured);
    return speeds(sent, summed_for(sent));
  }

 private:
  /// Bisects a falling function of nanoseconds per byte.
  template <class Falling>
  static double solve(const Falling& falling, double target) {
    double low = 1e-3;
    double high = 100;
    for (int i = 0; i < 30; ++i) {
      const double middle = (low + high) / 2;
      (falling(middle) > target ? low : high) = middle;
    }
    return (low + high) / 2;
  }

  [[nodiscard]] std::vector<double> speeds(double sent, double summed) const {
    const MachineProfile machine =
        with_scalar(with_scalar(published_, FitScalar::Sent, sent * 1e-9), FitScalar::Summed, summed * 1e-9);
    const auto sync = model_ == StepModel::SumsAfterOps ? AllReducePlacement::Post : AllReducePlacement::EagerOpt;
    std::vector<double> speeds;
    for (const Prediction& row : predict_figure_13(machine, sync)) {
      constexpr double kMiniBatch = 512;
      speeds.push_back(model_ == StepModel::EquationOne ? kMiniBatch / row.paper->seconds : row.sequences_per_second);
    }
    return speeds;
  }

  StepModel model_;
  MachineProfile published_ = published_p100();
};

class Figure13LinksTest : public ::testing::TestWithParam<StepModel> {};

TEST_P(Figure13LinksTest, HeldOutConfigurationsAreWithinATenthAndTheBestIsTheMeasuredOne) {
  const std::vector<double> predicted = FittedLinks(GetParam()).run();
  EXPECT_NEAR(predicted[0], figure_13()[0].measured, 0.1);  // fitted
  EXPECT_NEAR(predicted[3], figure_13()[3].measured, 0.1);
  expect_within(predicted[1], figure_13()[1].measured, "W4 D8");
  expect_within(predicted[2], figure_13()[2].measured, "W8 D4");
  EXPECT_EQ(std::ranges::max_element(predicted) - predicted.begin(), 2);  // W8 D4
}

INSTANTIATE_TEST_SUITE_P(Models, Figure13LinksTest, ::testing::Values(StepModel::EquationOne, StepModel::SumsAfterOps),
                         [](const auto& model) {
                           return model.param == StepModel::EquationOne ? "EquationOne" : "SumsAfterOps";
                         });

// If ops do not slow down beside all-reduces, too much time is hidden: Gloo's threads and copies through the host cost
// time. The best configuration is right, and no error exceeds 15 %.
TEST(Figure13BesideOpsTest, FindsTheBestAndIsWithinFifteenPercent) {
  const std::vector<double> predicted = FittedLinks(StepModel::OverlappedSums).run();
  EXPECT_EQ(std::ranges::max_element(predicted) - predicted.begin(), 2);
  for (const std::size_t row : {1, 2}) EXPECT_NEAR(predicted[row] / figure_13()[row].measured, 1, 0.15);
}

// The table of `benchmarks/paper`: the shipped profile, without fitting to these rows alone.
TEST(Figure13Test, ErrorsAreKnownAndTheBestIsInTheTie) {
  const MachineProfile machine = p100();
  const std::vector<Prediction> predicted = predict_figure_13(machine);
  ASSERT_EQ(predicted.size(), figure_13().size());
  for (std::size_t row = 0; row < predicted.size(); ++row)
    EXPECT_NEAR(predicted[row].sequences_per_second / figure_13()[row].measured, 1, row < 2 ? 0.1 : 0.35) << row;
  const auto best = std::ranges::max_element(predicted, {}, &Prediction::sequences_per_second);
  const double measured_best = predicted[2].sequences_per_second;  // W8 D4
  EXPECT_LE(best->sequences_per_second / measured_best, 1 + machine.expected_error);
}

TEST(Figure9Test, MaximaAndChimerasMinimaAreWithinATenth) {
  const MemoryFit fit = fit_figure_9(p100());
  for (const MemoryRow& row : figure_9()) {
    for (const auto& [schedule, cell] : row.cells) {
      if (!cell) continue;
      const MemoryRange predicted = predict_memory(p100(), row, schedule, fit);
      const std::string what =
          row.model + " D" + std::to_string(row.stages) + " B" + std::to_string(row.micro_batch_size) + " " + schedule;
      expect_within(predicted.most, cell->most, what);
      if (schedule == "chimera") expect_within(predicted.least, cell->least, what + ", least");
    }
  }
}

TEST(Figure9Test, PredictsOutOfMemoryUnlessUndecided) {
  const MemoryFit fit = fit_figure_9(p100());
  for (const MemoryRow& row : figure_9()) {
    for (const auto& [schedule, cell] : row.cells) {
      const double most = predict_memory(p100(), row, schedule, fit).most;
      if (std::abs(most / kCapacity - 1) <= kWithin) continue;  // undecided
      EXPECT_EQ(most > kCapacity, !cell.has_value())
          << row.model << " D" << row.stages << " " << schedule << " " << most;
    }
  }
}

}  // namespace
}  // namespace chimera
