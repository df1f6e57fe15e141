
#include "plan/layer_times.h"

#include <gtest/gtest.h>

#include "plan/plan.h"

namespace chimera {
namespace {

/// Forward b, input gradient 2b and weight gradient 3b seconds; 4 bytes of weights, 12 of state, 5b of activations, 6b
/// of output.
OwnLayer own_layer(double weight = 1) {
  OwnLayer result{{}, 4, 12, 5, 6};
  for (const std::int64_t size : {1, 2}) {
    const double b = weight * static_cast<double>(size);
    result.times.push_back({size, b, 2 * b, 3 * b, b});
  }
  return result;
}

PlanProblem problem_of_layers(std::vector<OwnLayer> layers) {
  PlanProblem problem;
  problem.model.layers = static_cast<std::int64_t>(layers.size());
  problem.layers = std::move(layers);
  problem.workers = 2;
  problem.mini_batch = 8;
  problem.memory_bytes = 1e9;
  return problem;
}

TEST(OwnLayersTest, TimesLieOnTheLineOfTheMeasuredSizes) {
  const std::vector<LayerTime> times = {{1, 3, 0, 0}, {3, 7, 0, 0}};
  EXPECT_DOUBLE_EQ(interpolate_time(times, 2).forward, 5);
  EXPECT_DOUBLE_EQ(interpolate_time(times, 4).forward, 9);
  EXPECT_DOUBLE_EQ(interpolate_time({{2, 3, 4, 0}}, 4).input_gradient, 8);
}

TEST(OwnLayersTest, StagesAddUpTheirLayers) {
  Predictor predictor(problem_of_layers({own_layer(), own_layer(7), own_layer()}));
  const Candidate candidate{.schedule = "1f1b", .shape = {.stages = 2, .micro_batches = 2}, .micro_batch_size = 4};
  const CostModel costs = predictor.prepare(candidate).model.costs;
  EXPECT_DOUBLE_EQ(costs.stages[0].forward, 8 * 4);
  EXPECT_DOUBLE_EQ(costs.stages[1].backward, 5 * 4);
  EXPECT_DOUBLE_EQ(costs.memory[0].weights, 8);
  EXPECT_DOUBLE_EQ(costs.memory[0].optimizer, 24 - 8);
  EXPECT_DOUBLE_EQ(costs.memory[1].boundary, 6 * 4);
  EXPECT_DOUBLE_EQ(costs.memory[1].activations, (6 + 5) * 4);
  EXPECT_LE(least_step_seconds(predictor.problem(), {candidate})[0], predictor.predict(candidate).step_seconds);
}

TEST(OwnLayersTest, PlansBalanceTheLayers) {
  Predictor predictor(problem_of_layers({own_layer(4), own_layer(), own_layer(), own_layer(), own_layer()}));
  const Plan plan = make_plan(predictor, {.schedules = {"1f1b"}, .given = {.stages = {2}}});
  EXPECT_EQ(plan.ranked.front().candidate.partition.layers, (std::vector<std::int64_t>{1, 4}));
}

}  // namespace
}  // namespace chimera
