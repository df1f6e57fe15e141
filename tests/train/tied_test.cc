// Tied models: embedding and head are one matrix. It trains as in the unpipelined model, on whatever stages it is used.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/error.h"
#include "generate/registry.h"
#include "model_config/parameters.h"
#include "support/schedules.h"
#include "support/training.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;

constexpr std::int64_t kTiedMicroBatches = 8;
constexpr std::int64_t kTiedSteps = 2;

TrainOptions tied(const std::string& model, const std::string& schedule, const PipelineShape& shape) {
  TrainOptions options = testing::small_options(model, schedule, shape);
  options.model.overrides.tied = true;
  options.updates.clip = 0.5;  // clips
  options.updates.learning_rate.peak = 0.01;
  return options;
}

TrainOptions canonical(TrainOptions options, DataType dtype) {
  options.numbers.dtype = dtype;
  options.numbers.reduction = ReductionOrder::Canonical;
  options.model.dropout = 0.1;
  return options;
}

std::string matrix_of(const std::string& model) { return tied_parameter(find_model(model)).name; }

/// The unpipelined run on the same micro-batches, cached.
const testing::Trained& tied_reference(TrainOptions options) {
  const Job job = prepare_job(options);
  options.data.micro_batch_size = job.run.samples_per_op();
  options.schedule.shape = {1, job.run.micro_batches()};
  options.parallel.data_parallel = 1;
  options.memory.recompute = {StageRule::None};
  options.schedule.name = "none";
  static std::map<std::string, testing::Trained> known;
  const std::string key = options.model.name + to_text(options.numbers.dtype) + to_text(options.numbers.reduction) +
                          std::to_string(options.data.micro_batch_size) + "," +
                          std::to_string(job.run.micro_batches()) + "," +
                          std::to_string(options.numbers.reduction_blocks);
  const auto found = known.find(key);
  return found != known.end() ? found->second : known[key] = testing::train(options, kTiedSteps);
}

void expect_one_matrix(const TrainOptions& options, const testing::Trained& trained, const std::string& what) {
  EXPECT_FALSE(trained.parameters.contains("lm_head.weight")) << what;
  const auto owners = prepare_job(options).run.rank_groups().back().size();
  EXPECT_EQ(trained.parameters.at(matrix_of(options.model.name)).size(), owners) << what;
  testing::expect_equal_copies(trained, what);
}

void expect_same_numbers(const TrainOptions& options, const std::string& what) {
  const auto trained = testing::train(options, kTiedSteps);
  const auto& expected = tied_reference(options);
  for (std::size_t step = 0; step < trained.losses.size(); ++step) {
    EXPECT_NEAR(trained.losses[step], expected.losses[step], 1e-11 * expected.losses[step]) << what;
    EXPECT_NEAR(trained.gradient_norms[step], expected.gradient_norms[step], 1e-11 * expected.gradient_norms[step])
        << what;
  }
  expect_one_matrix(options, trained, what);
}

void expect_tied_bits(const TrainOptions& options, const std::string& what) {
  const auto trained = testing::train(options, kTiedSteps);
  const auto& expected = tied_reference(options);
  EXPECT_THAT(trained.losses, ElementsAreArray(expected.losses)) << what;
  EXPECT_THAT(trained.gradient_norms, ElementsAreArray(expected.gradient_norms)) << what;
  EXPECT_THAT(trained.parameters_hashes, ElementsAreArray(expected.parameters_hashes)) << what;
  expect_one_matrix(options, trained, what);
}

/// Calls `visit` with every synchronous schedule of that depth, with all its flags, on kTiedMicroBatches.
template <class Visit>
void for_each_schedule(std::int64_t depth, Visit&& visit) {
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : testing::with_flags(generator, {depth, kTiedMicroBatches})) {
      try {
        const Schedule schedule = generator.generate(shape);
        if (schedule.updates || schedule.stages > 8) continue;
      } catch (const ConfigError&) {  // no such schedule
        continue;
      }
      visit(generator.name, shape);
    }
  }
}

TEST(TiedTest, EveryScheduleTrainsAsTheUnpipelinedModel) {
  for (const std::int64_t depth : {2, 4}) {
    for_each_schedule(depth, [](const std::string& name, const PipelineShape& shape) {
      expect_same_numbers(tied("gpt2-tiny", name, shape), testing::describe(name, shape));
    });
  }
  for (const char* name : {"1f1b", "chimera", "zb-v", "zb-h1"}) {
    for (const char* model : {"bert-tiny", "llama-tiny"})
      expect_same_numbers(tied(model, name, {4, kTiedMicroBatches}), name + std::string(", ") + model);
  }
}

TEST(TiedTest, EveryScheduleComputesTheBitsOfTheUnpipelinedModel) {
  for_each_schedule(4, [](const std::string& name, const PipelineShape& shape) {
    if (shape.slices > 1) return;  // SlicesTest
    expect_tied_bits(canonical(tied("gpt2-tiny", name, shape), DataType::Float32), testing::describe(name, shape));
  });
  for (const char* name : {"1f1b", "chimera", "zb-v", "zb-h1", "dualpipe"}) {
    for (const char* model : {"gpt2-tiny", "bert-tiny", "llama-tiny"})
      expect_tied_bits(canonical(tied(model, name, {2, kTiedMicroBatches}), DataType::Float64),
                       name + std::string(", ") + model);
  }
}

TEST(TiedTest, GroupsRecomputationAndTheTimeOfSumsChangeNothing) {
  for (const char* name : {"1f1b", "chimera", "zb-v", "zb-h1"}) {
    TrainOptions options = tied("gpt2-tiny", name, {4, kTiedMicroBatches / 2});
    options.parallel.data_parallel = 2;
    expect_same_numbers(options, name + std::string(", two groups"));
    expect_tied_bits(canonical(options, DataType::Float32), name + std::string(", two groups, canonical"));
    options = tied("gpt2-tiny", name, {4, kTiedMicroBatches});
    options.memory.recompute = {StageRule::Full};
    expect_same_numbers(options, name + std::string(", recomputed"));
    expect_tied_bits(canonical(options, DataType::Float32), name + std::string(", recomputed, canonical"));
    for (const AllReducePlacement sync : {AllReducePlacement::Post, AllReducePlacement::Eager}) {
      options = canonical(tied("gpt2-tiny", name, {4, kTiedMicroBatches}), DataType::Float32);
      options.schedule.sync = sync;
      expect_tied_bits(options, name + std::string(", ") + to_text(sync));
    }
  }
}

TEST(TiedTest, AnyNumberOfBlocksIsAddedInOneOrder) {
  for (const char* name : {"1f1b", "chimera"}) {
    TrainOptions options = canonical(tied("gpt2-tiny", name, {2, 12}), DataType::Float32);
    for (const std::int64_t blocks : {2, 6, 12}) {  // 6 and 12 give incomplete trees
      options.numbers.reduction_blocks = blocks;
      expect_tied_bits(options, fmt::format("{}, {} blocks", name, blocks));
    }
  }
}

TEST(TiedTest, TheNormCountsTheMatrixOnceWithTheGradientsOfBothUses) {
  TrainOptions options = tied("gpt2-tiny", "chimera", {4, 4});
  options.updates.clip = 0;
  const auto trained = testing::train(options, 1);
  const at::Tensor& gradient = trained.gradients.at("wte.weight")[0];
  EXPECT_GT(gradient.abs().min().item<double>(), 0) << "the head gives every token one, in the text or not";
  double square = 0;
  for (const auto& [name, copies] : trained.gradients) square += copies[0].square().sum().item<double>();
  EXPECT_NEAR(trained.gradient_norms[0], std::sqrt(square), 1e-12 * std::sqrt(square));
}

TEST(TiedTest, OwnersFollowFromThePlacementAlone) {
  const auto owners = [](const char* schedule, std::int64_t depth) {
    const auto groups = prepare_job(tied("gpt2-tiny", schedule, {depth, 8})).run.worker_groups();
    std::vector<std::int64_t> workers;
    for (const WorkerId worker : groups.back()) workers.push_back(worker.value());
    return workers;
  };
  EXPECT_THAT(owners("none", 4), ElementsAre(0));
  EXPECT_THAT(owners("1f1b", 4), ElementsAre(0, 3));
  EXPECT_THAT(owners("interleaved-1f1b", 4), ElementsAre(0, 3));
  EXPECT_THAT(owners("chimera", 4), ElementsAre(0, 3));
  EXPECT_THAT(owners("zb-v", 4), ElementsAre(0)) << "no message";
  EXPECT_THAT(owners("hanayo", 4), ElementsAre(0));
  EXPECT_THAT(owners("dualpipev", 4), ElementsAre(0));
}

TEST(TiedTest, BidirectionalOwnersAlreadySumTheEndStages) {
  for (const char* name : {"chimera", "chimera-zb", "gems", "dualpipe"}) {
    for (const std::int64_t pipelines : {2, 4}) {
      if (pipelines > 2 && std::string(name) != "chimera") continue;
      const auto groups = prepare_job(tied("gpt2-tiny", name, {4, 8, pipelines})).run.worker_groups();
      EXPECT_EQ(groups[4], groups[0]) << name;
      EXPECT_EQ(groups[4], groups[3]) << name;
    }
  }
}

}  // namespace
}  // namespace chimera
