#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "generate/registry.h"
#include "plan/plan.h"
#include "plan/worker_memory.h"
#include "support/paths.h"

namespace chimera {
namespace {

RankedCandidate best_of(PlanProblem problem, StageChoice recompute, double memory_bytes) {
  problem.memory_bytes = memory_bytes;
  Predictor predictor(problem);
  return make_plan(predictor, {.schedules = {"1f1b"},
                               .given = {.stages = {8}, .data_parallel = {1}, .micro_batch_sizes = {1}},
                               .recompute = std::move(recompute),
                               .top = 1})
      .ranked.front();
}

// Whole stages take 0.96 of the time of full recomputation in the median.
TEST(RecomputedBlocksTest, HalfOfTheMemoryCostsAThirdOfFullRecomputation) {
  PlanProblem problem{.model = find_model("llama-3-8b"),
                      .machine = read_machine(testing::source_path("/machines/h100-80gb.json")),
                      .workers = 8,
                      .mini_batch = 32,
                      .workload = workload_of(DataType::BFloat16, OptimizerKind::AdamW, 8192)};
  problem.workload.logits_of_chunk = kLogitsOfGpuChunk;
  const Prediction none = best_of(problem, {StageRule::None}, 80 * kGiB).prediction;
  const Prediction full = best_of(problem, {StageRule::Full}, 80 * kGiB).prediction;
  std::vector<double> extra;
  fmt::print("{:>8}  {:>8}  {:>6}  recompute\n", "GiB", "s/step", "extra");
  for (int i = 1; i <= 9; ++i) {
    const double memory = full.peak_memory_bytes + i * (none.peak_memory_bytes - full.peak_memory_bytes) / 10;
    const RankedCandidate best = best_of(problem, {StageRule::Auto}, memory);
    EXPECT_LE(best.prediction.peak_memory_bytes, memory);
    extra.push_back((best.prediction.step_seconds - none.step_seconds) / (full.step_seconds - none.step_seconds));
    fmt::print("{:8.2f}  {:8.3f}  {:6.3f}  {}, stages of {}\n", memory / kGiB, best.prediction.step_seconds,
               extra.back(), to_text(recompute_choice(best.candidate)), to_text(best.candidate.partition));
  }
  std::ranges::nth_element(extra, extra.begin() + 4);
  EXPECT_LE(extra[4], 0.3);
}

/// All levels of `blocks` blocks.
std::vector<BlockLevels> all_levels(std::int64_t blocks) {
  std::vector<BlockLevels> all;
  for (std::int64_t cheap = 0; cheap <= blocks; ++cheap) {
    for (std::int64_t attention = 0; cheap + attention <= blocks; ++attention) {
      for (std::int64_t full = 0; cheap + attention + full <= blocks; ++full)
        all.push_back({{0, cheap, attention, full}});
    }
  }
  return all;
}

TEST(RecomputedBlocksTest, TheChoiceOfAWorkerIsTheFastestThatFits) {
  const ModelConfig model = find_model("llama-3.2-1b");
  const Schedule schedule = find_generator("1f1b").generate({.stages = 2, .micro_batches = 4});
  const std::vector<StageLayers> partition = explicit_partition({6, 10}, 16, 2);
  const auto model_of = [&](const std::vector<StageLayers>& cut) {
    return stage_bytes(model, cut, schedule, {.micro_batch_size = 8, .sequence = 2048});
  };
  const StageModel whole = model_of(partition);
  const auto seconds_of = [&](const BlockLevels& levels) {
    double seconds = 0;
    for (std::size_t level = 1; level < 4; ++level)
      seconds += static_cast<double>(levels.counts[level]) * whole.savings[level].seconds;
    return seconds;
  };
  const auto peaks_with = [&](std::size_t stage, const BlockLevels& levels) {
    std::vector<StageLayers> cut = partition;
    cut[stage].levels = levels;
    return peaks_by_order(schedule, model_of(cut), {})[stage];
  };
  const double most = std::ranges::max(peaks_by_order(schedule, whole, {}));
  EXPECT_EQ(blocks_to_recompute(schedule, partition, most, model_of), StageChoice());
  for (const double part : {0.95, 0.9, 0.85}) {
    const auto found = blocks_to_recompute(schedule, partition, part * most, model_of);
    ASSERT_TRUE(found);
    for (std::size_t w = 0; w < 2; ++w) {
      double least = std::numeric_limits<double>::infinity();
      for (const BlockLevels& levels : all_levels(partition[w].blocks())) {
        if (seconds_of(levels) < least && peaks_with(w, levels) <= part * most) least = seconds_of(levels);
      }
      const BlockLevels chosen = found->counts.empty() ? BlockLevels() : found->counts[w];
      EXPECT_LE(peaks_with(w, chosen), part * most);
      EXPECT_DOUBLE_EQ(seconds_of(chosen), least) << part << " of the memory, worker " << w;
    }
  }
  EXPECT_FALSE(blocks_to_recompute(schedule, partition, 0.1 * most, model_of));
}

TEST(RecomputedBlocksTest, StagesOfTwoWorkersFitOnBoth) {
  const ModelConfig model = find_model("gpt2-mini");
  const Schedule schedule = find_generator("chimera").generate({.stages = 4, .micro_batches = 8});
  const auto model_of = [&](const std::vector<StageLayers>& cut) {
    return stage_bytes(model, cut, schedule, {.micro_batch_size = 8, .sequence = 512});
  };
  std::vector<StageLayers> partition = even_partition(model.layers, 4);
  const double most = std::ranges::max(peaks_by_order(schedule, model_of(partition), {}));
  const auto found = blocks_to_recompute(schedule, partition, 0.8 * most, model_of);
  ASSERT_TRUE(found);
  set_levels(partition, *found);
  EXPECT_LE(std::ranges::max(peaks_by_order(schedule, model_of(partition), {})), 0.8 * most);
}

}  // namespace
}  // namespace chimera
