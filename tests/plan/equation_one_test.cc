// The paper's equation 1. Its counts are compared with the simulator, its terms with values computed by hand.

#include "plan/equation_one.h"

#include <gtest/gtest.h>

#include "generate/registry.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

struct Case {
  const char* schedule;
  PipelineShape shape;
};

double simulated(const Case& of, double forward, double backward) {
  const Schedule schedule = find_generator(of.schedule).generate(of.shape);
  const StageCosts stage{forward, backward, backward / 2, backward / 2};
  return simulate(schedule, CostModel::uniform(schedule, stage)).makespan;
}

std::optional<CriticalOps> critical_ops(const std::string& schedule, const PipelineShape& shape, double ratio) {
  const PaperModel* paper = paper_model(find_generator(schedule), shape);
  return paper == nullptr ? std::nullopt : std::optional(paper->critical_ops(shape, ratio));
}

double counted(const Case& of, double forward, double backward) {
  const CriticalOps counts = critical_ops(of.schedule, of.shape, backward / forward).value();
  const double size = of.shape.scale == ScaleMethod::Halving ? 0.5 : 1;
  return size * (static_cast<double>(counts.forwards) * forward + static_cast<double>(counts.backwards) * backward);
}

TEST(EquationOneTest, CountsThePapersExample) {
  EXPECT_EQ(critical_ops("chimera", {6, 6, 2}, 2), (CriticalOps{6, 10}));
}

TEST(EquationOneTest, CountsMatchTheSimulatorsMakespan) {
  std::vector<Case> cases;
  for (const std::int64_t depth : {2, 4, 6, 8, 12}) {
    for (const std::int64_t count : {1, 2, 4, 8, 16}) {
      for (const char* name : {"gpipe", "1f1b", "gems"}) cases.push_back({name, {depth, count}});
      if (count <= depth) cases.push_back({"chimera", {depth, count, 2}});
    }
    for (const std::int64_t units : {1, 2, 3, 4}) {
      cases.push_back({"chimera", {depth, units * depth, 2}});
      if (depth % 4 == 0) cases.push_back({"chimera", {depth, units * depth, 4}});
      cases.push_back({.schedule = "chimera",
                       .shape = {.stages = depth, .micro_batches = 2 * units * depth, .scale = ScaleMethod::Doubling}});
      cases.push_back({.schedule = "chimera",
                       .shape = {.stages = depth, .micro_batches = units * depth, .scale = ScaleMethod::Halving}});
    }
  }
  for (const Case& each : cases) {
    for (const double backward : {1.0, 1.75, 2.0, 3.0}) {
      EXPECT_DOUBLE_EQ(counted(each, 1, backward), simulated(each, 1, backward))
          << each.schedule << " D " << each.shape.stages << " N " << each.shape.micro_batches << " 2f "
          << each.shape.pipelines << " scale " << static_cast<int>(each.shape.scale) << " B " << backward;
    }
  }
}

TEST(EquationOneTest, CountsAPartialLastUnitToWithinAnOp) {
  for (const std::int64_t count : {5, 6, 7, 10, 11, 14}) {
    for (const ScaleMethod scale : {ScaleMethod::Direct, ScaleMethod::Doubling}) {
      const Case each{.schedule = "chimera", .shape = {.stages = 4, .micro_batches = count, .scale = scale}};
      EXPECT_NEAR(counted(each, 1, 2), simulated(each, 1, 2), 3) << count << " " << static_cast<int>(scale);
    }
  }
}

TEST(EquationOneTest, SchedulesWithoutAClosedFormHaveNone) {
  EXPECT_FALSE(critical_ops("zb-h1", {4, 8}, 2));
  EXPECT_FALSE(critical_ops("interleaved-1f1b", {4, 8}, 2));
  EXPECT_FALSE(critical_ops("chimera", {.stages = 4, .micro_batches = 8, .chunks = 2}, 2));
}

CostModel costs_of_four_stages() {
  CostModel costs;
  costs.stages.assign(4, {.forward = 1, .backward = 2});
  costs.links = LinkCosts{.alpha = 0.25, .beta = 1e-3, .bytes = {250, 250, 250}};
  costs.all_reduce = AllReduceCosts{.seconds = {3, 4, 5, 6}};
  return costs;
}

EquationOne equation_of(const std::string& name, const PipelineShape& shape, const CostModel& costs) {
  const Generator& generator = find_generator(name);
  return equation_one(*paper_model(generator, shape), generator.generate(shape), shape, costs);
}

TEST(EquationOneTest, AddsMessagesAndExposedAllReduces) {
  const PipelineShape shape{4, 4, 2};
  const EquationOne equation = equation_of("chimera", shape, costs_of_four_stages());
  EXPECT_DOUBLE_EQ(equation.point_to_point, 0.5);
  EXPECT_EQ(equation.critical, (CriticalOps{4, 6}));
  // Workers 0 and 3 hold stages 0 and 3: stage 3 has one bubble of a backward (2), stage 0 has none. Workers 1 and 2
  // hold stages 1 and 2, with 2 idle at the end and 1 at the next start.
  EXPECT_DOUBLE_EQ(equation.all_reduce, 3 + 6);
  EXPECT_DOUBLE_EQ(equation.unoverlapped, 3 + 6 - 2);
  EXPECT_DOUBLE_EQ(equation.seconds, 4 * 1.5 + 6 * 2.5 + 7);
}

TEST(EquationOneTest, OneReplicaHidesSumsBehindLaterBackwardsOfEarlierStages) {
  const PipelineShape shape{4, 4};
  CostModel costs = costs_of_four_stages();
  costs.all_reduce->data_parallel = 2;
  const EquationOne equation = equation_of("1f1b", shape, costs);
  EXPECT_DOUBLE_EQ(equation.unoverlapped, 3);  // worker 0; worker 1 has 4 - (1 + 2)
  EXPECT_DOUBLE_EQ(equation.seconds, 7 * (1.5 + 2.5) + 3);
}

TEST(EquationOneTest, RecomputationIsPartOfTheBackward) {
  const PipelineShape shape{4, 4};
  CostModel costs = costs_of_four_stages();
  costs.recompute.assign(4, 1);
  const EquationOne equation = equation_of("1f1b", shape, costs);
  EXPECT_DOUBLE_EQ(equation.backward, 3);
}

}  // namespace
}  // namespace chimera
