// Canonical reduction: every schedule, depth, number of pipelines and number of groups gives the same bits.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"
#include "generate/registry.h"
#include "model_config/footprint.h"
#include "passes/pair_neighbors.h"
#include "support/message_of.h"
#include "support/schedules.h"
#include "support/training.h"

namespace chimera {
namespace {

using ::testing::ElementsAreArray;
using ::testing::HasSubstr;

constexpr std::int64_t kMicroBatches = 8;  // of a step, over all groups
constexpr std::int64_t kCanonicalSteps = 4;

TrainOptions canonical(const std::string& schedule, const PipelineShape& shape, DataType dtype) {
  TrainOptions options = testing::small_options("gpt2-tiny", schedule, shape);
  options.numbers.dtype = dtype;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.updates.clip = 0.5;  // clips
  options.model.dropout = 0.1;
  options.updates.learning_rate.peak = 0.01;
  return options;
}

const testing::Trained& reference(DataType dtype) {
  static const auto run = [](DataType of) {
    return testing::train(canonical("none", {1, kMicroBatches}, of), kCanonicalSteps);
  };
  static const testing::Trained float32 = run(DataType::Float32);
  static const testing::Trained float64 = run(DataType::Float64);
  return dtype == DataType::Float32 ? float32 : float64;
}

void expect_same_bits(const testing::Trained& trained, const testing::Trained& expected, const std::string& what) {
  EXPECT_THAT(trained.losses, ElementsAreArray(expected.losses)) << what;
  EXPECT_THAT(trained.gradient_norms, ElementsAreArray(expected.gradient_norms)) << what;
  EXPECT_THAT(trained.parameters_hashes, ElementsAreArray(expected.parameters_hashes)) << what;
  testing::expect_equal_copies(trained, what);
}

void expect_same_bits(const TrainOptions& options, const std::string& what) {
  expect_same_bits(testing::train(options, kCanonicalSteps), reference(options.numbers.dtype), what);
}

TEST(CanonicalTest, EveryScheduleComputesTheBitsOfTheUnpipelinedModel) {
  for (const Generator& generator : generators()) {
    for (const std::int64_t depth : {2, 4}) {
      for (const PipelineShape& shape : testing::with_flags(generator, {depth, kMicroBatches})) {
        try {
          const Schedule schedule = generator.generate(shape);
          if (schedule.updates || schedule.stages > 8 || schedule.micro_batch_scale != 1) continue;
          if (schedule.slices > 1) continue;
        } catch (const ConfigError&) {  // no such schedule
          continue;
        }
        expect_same_bits(canonical(generator.name, shape, DataType::Float32), testing::describe(generator.name, shape));
      }
    }
  }
}

TEST(CanonicalTest, ConcurrentPairsComputeTheSameBits) {
  const auto expect_same = [](TrainOptions options, const std::string& what) {
    options.schedule.pairs = Pairs::Together;
    expect_same_bits(options, what);
    options.memory.recompute = {StageRule::Full};
    expect_same_bits(options, what + ", recomputed");
  };
  for (const std::int64_t depth : {2, 4}) {
    expect_same(canonical("dualpipe", {depth, kMicroBatches}, DataType::Float32), "dualpipe");
    expect_same(canonical("dualpipev", {depth, kMicroBatches}, DataType::Float32), "dualpipev");
  }
  for (const char* name : {"1f1b", "zb-h1", "chimera"}) {
    const PipelineShape shape{.stages = 4, .micro_batches = kMicroBatches};
    TrainOptions options = canonical(name, shape, DataType::Float32);
    options.schedule.given = std::make_shared<const Schedule>(pair_neighbors(find_generator(name).generate(shape)));
    expect_same(options, std::string(name) + " with its neighbours as pairs");
  }
}

TEST(CanonicalTest, ConcurrentGroupsComputeTheSameBits) {
  for (const std::string name : {"1f1b", "chimera", "zb-h1", "dualpipe"}) {
    TrainOptions options = canonical(name, {2, kMicroBatches / 2}, DataType::Float32);
    options.parallel.data_parallel = 2;
    expect_same_bits(options, name + ", two groups");
  }
  TrainOptions options = canonical("chimera", {4, kMicroBatches / 2, 4}, DataType::Float64);
  options.parallel.data_parallel = 2;
  options.parallel.replica_layout = ReplicaLayout::Far;
  expect_same_bits(options, "two groups of four pipelines, float64");
}

TEST(CanonicalTest, RecomputationChangesNoBit) {
  for (const std::string name : {"chimera", "zb-h1"}) {
    TrainOptions options = canonical(name, {4, kMicroBatches}, DataType::Float32);
    for (const std::string text : {"full", "attention", "cheap", "full:1", "cheap:0,1,0,1+full:1,0,1,0"}) {
      options.memory.recompute = parse_stages(kRecomputeFlag, text);
      expect_same_bits(options, name + ", recomputed " + text);
    }
  }
}

TEST(CanonicalTest, MaskedTokensAndTiedMatricesKeepEveryBit) {
  for (const bool tied : {false, true}) {
    const auto options_of = [tied](const std::string& schedule, const PipelineShape& shape) {
      TrainOptions options = canonical(schedule, shape, DataType::Float32);
      options.model.name = "bert-tiny";
      options.model.overrides.tied = tied;
      return options;
    };
    const auto expected = testing::train(options_of("none", {1, kMicroBatches}), kCanonicalSteps);
    for (const std::string name : {"chimera", "zb-h1", "interleaved-1f1b"}) {
      const std::string what = name + (tied ? ", tied" : "");
      expect_same_bits(
          testing::train(options_of(name, default_shape(find_generator(name), 4, kMicroBatches)), kCanonicalSteps),
          expected, what);
    }
  }
}

// LAMB's step depends on the norms of whole tensors, however they are distributed.
TEST(CanonicalTest, LambKeepsEveryBit) {
  const auto options_of = [](const std::string& schedule, const PipelineShape& shape) {
    TrainOptions options = canonical(schedule, shape, DataType::Float32);
    options.updates.optimizer = {.kind = OptimizerKind::Lamb, .weight_decay = 0.1};
    options.model.overrides.tied = true;
    return options;
  };
  const auto expected = testing::train(options_of("none", {1, kMicroBatches}), kCanonicalSteps);
  for (const std::string name : {"chimera", "zb-v", "interleaved-1f1b"}) {
    expect_same_bits(
        testing::train(options_of(name, default_shape(find_generator(name), 4, kMicroBatches)), kCanonicalSteps),
        expected, name);
  }
  TrainOptions options = options_of("chimera", {2, kMicroBatches / 2});
  options.parallel.data_parallel = 2;
  options.memory.shard_optimizer = true;
  expect_same_bits(testing::train(options, kCanonicalSteps), expected, "two groups, sharded");
}

// A tied matrix gets rows from the embedding and a gradient from each chunk of logits.
TEST(CanonicalTest, SeveralChunksOfLogitsKeepEveryBit) {
  const auto options_of = [](const std::string& schedule, std::int64_t depth) {
    TrainOptions options = canonical(schedule, {depth, 4}, DataType::Float32);
    options.model.overrides = {.layers = 2, .hidden = 8, .heads = 2, .vocabulary = 70'000, .tied = true};
    options.data.sequence = 128;
    return options;
  };
  ASSERT_EQ(chunks_of(2 * 128, 70'000).count(), 2);
  const auto expected = testing::train(options_of("none", 1), 2);
  for (const std::string name : {"chimera", "zb-h1"})
    expect_same_bits(testing::train(options_of(name, 2), 2), expected, name);
}

TEST(CanonicalTest, HalvesOfMicroBatchesAreMicroBatches) {
  TrainOptions options = canonical("chimera", {4, kMicroBatches, 2, 2, 1, ScaleMethod::Halving}, DataType::Float32);
  const auto halved = testing::train(options, kCanonicalSteps);
  options = canonical("none", {1, 2 * kMicroBatches}, DataType::Float32);
  options.data.micro_batch_size /= 2;
  const auto expected = testing::train(options, kCanonicalSteps);
  EXPECT_THAT(halved.losses, ElementsAreArray(expected.losses));
  EXPECT_THAT(halved.parameters_hashes, ElementsAreArray(expected.parameters_hashes));
}

TEST(CanonicalTest, TheNumberOfBlocksChangesLastBitsOnly) {
  TrainOptions options = canonical("none", {1, kMicroBatches}, DataType::Float32);
  options.numbers.reduction_blocks = 1;
  const auto one_block = testing::train(options, kCanonicalSteps);
  EXPECT_NE(one_block.parameters_hashes.back(), reference(DataType::Float32).parameters_hashes.back());
  EXPECT_NEAR(one_block.losses.back(), reference(DataType::Float32).losses.back(), 1e-5);
}

TEST(CanonicalTest, ReplicasWithPartsOfBlocksAreRefused) {
  TrainOptions options = canonical("chimera", {4, kMicroBatches}, DataType::Float32);
  options.numbers.reduction_blocks = 1;
  EXPECT_THAT(testing::message_of([&] { static_cast<void>(prepare_job(options)); }, "accepted"),
              HasSubstr("use 2, 4, 8"));
}

}  // namespace
}  // namespace chimera
