#include "plan/balance.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "core/error.h"
#include "simulate/explain.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using Cut = std::vector<std::int64_t>;

LayerLoad layer(double time) { return {.forward = time, .input_gradient = time, .weight_gradient = time}; }

/// Blocks of time 1 and a head of time `head`.
ModelLoads with_head(std::size_t blocks, double head) {
  ModelLoads loads;
  loads.blocks.assign(blocks, layer(1));
  loads.head = layer(head);
  return loads;
}

Schedule schedule(const char* name, PipelineShape shape) { return find_generator(name).generate(shape); }

TEST(BalanceTest, AHeadTakesThePlaceOfBlocks) {
  const auto found = balance(schedule("1f1b", {4, 8}), with_head(12, 4));
  EXPECT_EQ(found->least, 8 * 3 * 5);  // 8 micro-batches through head and one block
  EXPECT_EQ(found->layers.back(), 1);
  EXPECT_EQ(found->slowest, found->least);
  EXPECT_TRUE(found->exact);
}

TEST(BalanceTest, WithChimeraThePairsBalance) {
  const auto found = balance(schedule("chimera", {4, 4}), with_head(12, 4));
  EXPECT_EQ(found->least, 4 / 2 * 3 * 8);  // 4 blocks and the head on the outer workers, 8 blocks on the inner ones
}

TEST(BalanceTest, EqualPairsAreRankedBySimulation) {
  const Schedule chimera = schedule("chimera", {4, 4});
  const ModelLoads loads = with_head(12, 4);
  const auto found = balance(chimera, loads);
  for (const Cut& equal_pairs : {Cut{1, 1, 7, 3}, Cut{1, 4, 4, 3}, Cut{2, 4, 4, 2}, Cut{3, 4, 4, 1}, Cut{3, 7, 1, 1}})
    EXPECT_LE(found->makespan, simulate(chimera, stage_costs(loads, equal_pairs)).makespan);
  EXPECT_LT(found->makespan, simulate(chimera, stage_costs(loads, {3, 7, 1, 1})).makespan);
}

TEST(BalanceTest, EqualBlocksStayEven) {
  for (const char* name : {"gpipe", "1f1b", "chimera", "interleaved-1f1b", "zb-v", "hanayo", "pipedream"}) {
    const Schedule even = schedule(name, default_shape(find_generator(name), 4, 8));
    const auto found = balance(even, with_head(2 * static_cast<std::size_t>(even.stages), 0));
    EXPECT_EQ(found->layers, Cut(static_cast<std::size_t>(even.stages), 2)) << name;
  }
}

TEST(BalanceTest, AMemoryLimitMovesLayersToWorkersWithFewInFlight) {
  ModelLoads loads = with_head(8, 0);
  for (LayerLoad& block : loads.blocks) block.activations = 1;
  const Schedule one = schedule("1f1b", {2, 8});  // 2 in flight on worker 0, 1 on worker 1
  EXPECT_THAT(balance(one, loads)->layers, ElementsAre(4, 4));
  EXPECT_THAT(balance(one, loads, {.memory = 6})->layers, ElementsAre(3, 5));
  EXPECT_EQ(balance(one, loads, {.memory = 5}), std::nullopt);
  EXPECT_THAT(balance(one, loads, {.memory = 5, .recompute = true})->layers, ElementsAre(4, 4));
}

TEST(BalanceTest, RefusesImpossibleLoads) {
  const Schedule four = schedule("gpipe", {4, 4});
  EXPECT_THROW((void)balance(four, with_head(3, 0)), ConfigError);
  EXPECT_THROW((void)balance(four, with_head(4, -1)), ConfigError);
}

TEST(BalanceTest, ManyStagesTakeFewSteps) {
  for (const char* name : {"1f1b", "chimera", "gems"}) {
    const auto found = balance(schedule(name, {32, 32}), with_head(64, 5), {.candidates = 20, .steps = 0});
    EXPECT_TRUE(found->exact) << name;
  }
  const auto found =
      balance(schedule("interleaved-1f1b", {8, 8, 2, 4}), with_head(64, 5), {.candidates = 20, .steps = 0});
  EXPECT_TRUE(found->exact);
}

/// All ways to cut `layers` blocks into `stages`.
std::vector<Cut> all_cuts(std::int64_t layers, std::int64_t stages) {
  if (stages == 1) return {{layers}};
  std::vector<Cut> cuts;
  for (std::int64_t first = 1; first <= layers - stages + 1; ++first) {
    for (Cut rest : all_cuts(layers - first, stages - 1)) {
      rest.insert(rest.begin(), first);
      cuts.push_back(rest);
    }
  }
  return cuts;
}

/// Loads between 0 and 10 in steps of 1/4, so sums are exact.
ModelLoads any_loads(std::size_t blocks, bool alike) {
  const auto any = [] { return 0.25 * *rc::gen::inRange(0, 40); };
  const auto any_layer = [&] { return LayerLoad{any(), any(), any(), any(), any(), any(), any()}; };
  ModelLoads loads{.embedding = any_layer(), .blocks = {}, .head = any_layer(), .boundary = any()};
  loads.blocks.assign(blocks, any_layer());
  for (LayerLoad& block : loads.blocks) {
    if (!alike) block = any_layer();
  }
  return loads;
}

Schedule any_schedule(std::int64_t most_stages) {
  const auto& generator = generators()[*rc::gen::inRange<std::size_t>(0, generators().size())];
  std::vector<PipelineShape> shapes;
  for (const PipelineShape& shape : testing::small_shapes(generator.name, 6)) {
    if (generator.generate(shape).stages <= most_stages) shapes.push_back(shape);
  }
  return generator.generate(*rc::gen::elementOf(shapes));
}

double slowest_of(const Schedule& schedule, const CostModel& costs) {
  double most = 0;
  for (const WorkerTimeline& worker : simulate(schedule, costs).workers) most = std::max(most, worker.busy);
  return most;
}

RC_GTEST_PROP(BalanceProperty, NoCutHasAFasterSlowestWorker, ()) {
  const Schedule any = any_schedule(6);
  const auto blocks = *rc::gen::inRange<std::int64_t>(any.stages, 9);
  const ModelLoads loads = any_loads(static_cast<std::size_t>(blocks), *rc::gen::arbitrary<bool>());
  const bool recompute = *rc::gen::arbitrary<bool>();
  const auto found = balance(any, loads, {.recompute = recompute, .tolerance = 0.5});
  double least = 1e9;
  double fastest = 1e9;
  for (const Cut& cut : all_cuts(blocks, any.stages)) {
    const CostModel costs = stage_costs(loads, cut, recompute);
    least = std::min(least, slowest_of(any, costs));
    if (slowest_of(any, costs) <= 1.4 * found->least) fastest = std::min(fastest, simulate(any, costs).makespan);
  }
  RC_ASSERT(found->exact);
  RC_ASSERT(std::abs(found->least - least) <= 1e-8 * least);
  RC_ASSERT(found->makespan <= fastest * (1 + 1e-8));
  RC_ASSERT(std::abs(found->slowest - slowest_of(any, stage_costs(loads, found->layers, recompute))) < 1e-6);
}

/// Peak bytes on each worker according to explain() if messages take no memory.
double peak_bytes(const Schedule& schedule, const ModelLoads& loads, const Cut& cut) {
  CostModel costs = stage_costs(loads, cut);
  auto block = loads.blocks.begin();
  for (std::size_t s = 0; s < cut.size(); ++s) {
    StageMemory memory;
    memory.deferred = 0;
    const auto add = [&](const LayerLoad& layer) {
      memory.weights += layer.weights;
      memory.gradients += layer.state;
      memory.activations += layer.activations;
      *memory.deferred += layer.deferred;
    };
    if (s == 0) add(loads.embedding);
    for (std::int64_t i = 0; i < cut[s]; ++i) add(*block++);
    if (s + 1 == cut.size()) add(loads.head);
    costs.memory.push_back(memory);
  }
  double peak = 0;
  for (const auto& worker : explain(schedule, costs, simulate(schedule, costs)).memory) {
    for (const MemoryPoint& point : worker) peak = std::max(peak, point.amount);
  }
  return peak;
}

RC_GTEST_PROP(BalanceProperty, MemoryMatchesTheSimulator, ()) {
  const Schedule any = any_schedule(5);
  if (any.updates) return;  // versions count for the whole step
  const auto blocks = *rc::gen::inRange<std::int64_t>(any.stages, 8);
  ModelLoads loads = any_loads(static_cast<std::size_t>(blocks), true);
  for (LayerLoad* layer : {&loads.embedding, &loads.head})
    layer->deferred = std::min(layer->deferred, layer->activations);
  for (LayerLoad& block : loads.blocks) {
    block = loads.blocks.front();
    block.deferred = std::min(block.deferred, block.activations);
    block.forward += 0.25;
    block.weight_gradient += 0.25;
    block.input_gradient += 0.25;
  }
  loads.boundary = 0;
  double least = 1e9;
  for (const Cut& cut : all_cuts(blocks, any.stages)) least = std::min(least, peak_bytes(any, loads, cut));
  const BalanceOptions quick{.memory = least, .candidates = 5, .steps = 0};
  const auto fitting = balance(any, loads, quick);
  RC_ASSERT(fitting.has_value());
  RC_ASSERT(peak_bytes(any, loads, fitting->layers) <= least + 1e-9);
  RC_ASSERT(balance(any, loads, {.memory = least * (1 - 1e-6) - 1e-6, .candidates = 5, .steps = 0}) == std::nullopt);
}

}  // namespace
}  // namespace chimera
