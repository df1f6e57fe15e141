// Micro-batches that are cut along the sequence give the loss and gradients of whole ones, for every schedule.
//
// Tolerance: float64 has 16 digits; other orders of summation cost a few of the last ones.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <map>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/error.h"
#include "generate/registry.h"
#include "model_config/footprint.h"
#include "support/schedules.h"
#include "support/scratch.h"
#include "support/training.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr std::int64_t kSlicedMicroBatches = 4;
constexpr std::int64_t kSlices = 3;  // of 16 tokens: slices of 5 or 6

/// Cuts each op into the ops of its slices, one after another.
Schedule cut(Schedule schedule, std::int64_t slices) {
  schedule.slices = slices;
  for (auto& ops : schedule.workers) {
    std::vector<Op> all;
    for (Op op : ops) {
      op.paired = false;
      for (std::int64_t j = 0; j < slices; ++j) {
        op.slice = static_cast<std::int16_t>(op.kind == OpKind::Forward ? j : slices - 1 - j);
        all.push_back(op);
      }
    }
    ops = std::move(all);
  }
  return schedule;
}

Schedule schedule_of(const std::string& name, std::int64_t stages) {
  const Generator& generator = find_generator(name);
  return generator.generate(default_shape(generator, stages, kSlicedMicroBatches));
}

TrainOptions in_slices(const std::string& model, const std::string& schedule, std::int64_t stages) {
  TrainOptions options = testing::small_options(model, schedule, {stages, kSlicedMicroBatches});
  options.schedule.given = std::make_shared<const Schedule>(cut(schedule_of(schedule, stages), kSlices));
  options.schedule.file = schedule + ".json";
  return options;
}

/// A folder of short documents.
std::string documents() {
  static const testing::Scratch scratch;
  static const std::string folder = [] {
    std::filesystem::create_directory(scratch.path("documents"));
    for (int i = 0; i < 60; ++i) {
      std::string text;
      for (int k = 0; k < 3 + i % 20; ++k) text += static_cast<char>('a' + (i * k * k + i) % 26);
      static_cast<void>(scratch.write("documents/" + std::to_string(i) + ".txt", text));
    }
    return scratch.path("documents");
  }();
  return folder;
}

struct Setting {
  std::string name;
  double dropout = 0;
  bool splits_documents = false;
  bool tied = false;
  StageRule recompute = StageRule::None;
  std::int64_t groups = 1;
};

const std::vector<Setting> kSettings = {
    {.name = "plain"},
    {.name = "dropout, recomputed", .dropout = 0.2, .recompute = StageRule::Full},
    {.name = "dropout, tied, attention recomputed", .dropout = 0.2, .tied = true, .recompute = StageRule::Attention},
    {.name = "documents, two groups", .splits_documents = true, .groups = 2},
    {.name = "documents, attention recomputed", .splits_documents = true, .recompute = StageRule::Attention},
    {.name = "everything",
     .dropout = 0.2,
     .splits_documents = true,
     .tied = true,
     .recompute = StageRule::Full,
     .groups = 2},
};

TrainOptions with(TrainOptions options, const Setting& setting) {
  options.model.dropout = setting.dropout;
  options.model.overrides.tied = setting.tied;
  options.memory.recompute = {setting.recompute};
  options.parallel.data_parallel = setting.groups;
  if (!setting.splits_documents) return options;
  options.data.training = documents();
  options.data.documents = Documents::Split;
  return options;
}

/// The unpipelined model on whole micro-batches, cached.
const testing::Trained& whole_run(TrainOptions options, const std::string& setting) {
  static std::map<std::string, testing::Trained> known;
  const auto [found, is_new] = known.try_emplace(options.model.name + ", " + setting);
  if (!is_new) return found->second;
  options.schedule.given = nullptr;
  options.schedule.shape = {1, kSlicedMicroBatches * options.parallel.data_parallel};
  options.parallel.data_parallel = 1;
  options.memory.recompute = {StageRule::None};
  return found->second = testing::train_unpipelined(options, 1);
}

void expect_whole_results(const TrainOptions& options, const std::string& setting) {
  SCOPED_TRACE(setting);
  testing::expect_gradients(testing::train(options, 1), whole_run(options, setting));
}

struct SlicedRun {
  std::string model;
  std::string schedule;
  std::int64_t stages = 2;
};

class SlicesTest : public ::testing::TestWithParam<SlicedRun> {};

/// Whole and split backwards, one and several replicas, several stages per worker.
INSTANTIATE_TEST_SUITE_P(Schedules, SlicesTest,
                         ::testing::Values(SlicedRun{"gpt2-tiny", "gpipe", 4}, SlicedRun{"gpt2-tiny", "1f1b", 4},
                                           SlicedRun{"gpt2-tiny", "interleaved-1f1b", 2},
                                           SlicedRun{"gpt2-tiny", "chimera", 4}, SlicedRun{"gpt2-tiny", "zb-h1", 4},
                                           SlicedRun{"gpt2-tiny", "zb-v", 2}, SlicedRun{"gpt2-tiny", "dualpipe", 2},
                                           SlicedRun{"llama-tiny", "1f1b", 2}, SlicedRun{"llama-tiny", "chimera", 2},
                                           SlicedRun{"llama-tiny", "chimera-zb", 4},
                                           SlicedRun{"llama-tiny", "zb-v", 2}),
                         [](const auto& tested) {
                           std::string name = tested.param.model + "_" + tested.param.schedule + "_" +
                                              std::to_string(tested.param.stages);
                           std::ranges::replace_if(
                               name, [](char letter) { return std::isalnum(letter) == 0; }, '_');
                           return name;
                         });

TEST_P(SlicesTest, LossAndGradientsAreThoseOfTheUnpipelinedModel) {
  const auto& [model, schedule, stages] = GetParam();
  for (const Setting& setting : kSettings)
    expect_whole_results(with(in_slices(model, schedule, stages), setting), setting.name);
}

TEST(SlicesOfSchedulesTest, GeneratedSlicesGiveTheResultsOfTheUnpipelinedModel) {
  for (const char* schedule : {"gpipe", "1f1b"}) {
    for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
      for (const Setting& setting : kSettings) {
        PipelineShape shape{4, kSlicedMicroBatches};
        shape.slices = 4;
        expect_whole_results(with(testing::small_options(model, schedule, shape), setting), setting.name);
      }
    }
  }
}

TEST(SlicesOfSchedulesTest, UnequalLengthsAndValidationGiveTheResultsOfTheUnpipelinedModel) {
  TrainOptions options = in_slices("llama-tiny", "chimera", 2);
  options.schedule.slice_lengths = {9, 1, 6};
  options.updates.clip = 0.5;
  options.updates.learning_rate.peak = 0.01;
  options.data.validate_every = 5;
  TrainOptions whole = options;
  whole.schedule.given = nullptr;
  whole.schedule.slice_lengths = {};
  whole.schedule.shape = {1, kSlicedMicroBatches};
  testing::expect_losses(testing::train(options, 5), testing::train_unpipelined(whole, 5));
}

TEST(SlicesOfSchedulesTest, CanonicalBitsAreEqualForTheSameSlices) {
  const auto canonical = [](TrainOptions options) {
    options.numbers.dtype = DataType::Float32;
    options.numbers.reduction = ReductionOrder::Canonical;
    options.model.dropout = 0.1;
    options.updates.clip = 0.5;
    options.updates.learning_rate.peak = 0.01;
    return testing::train(options, 3);
  };
  PipelineShape shape{1, kSlicedMicroBatches};
  shape.slices = kSlices;
  const auto expected = canonical(testing::small_options("gpt2-tiny", "none", shape));
  for (const char* schedule : {"gpipe", "1f1b", "chimera", "zb-h1", "zb-v"}) {
    TrainOptions options = in_slices("gpt2-tiny", schedule, 2);
    for (const char* text : {"none", "full", "attention", "cheap", "full:1"}) {
      options.memory.recompute = parse_stages(kRecomputeFlag, text);
      const auto trained = canonical(options);
      EXPECT_THAT(trained.losses, ElementsAreArray(expected.losses)) << schedule;
      EXPECT_THAT(trained.gradient_norms, ElementsAreArray(expected.gradient_norms)) << schedule;
      EXPECT_THAT(trained.parameters_hashes, ElementsAreArray(expected.parameters_hashes)) << schedule;
    }
  }
}

/// As Bfloat16Test, over the means of ten steps.
TEST(SlicesOfSchedulesTest, InBfloat16LossStaysWithinHalfAPercentOfFloat32) {
  constexpr std::int64_t kSteps = 20;
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
    TrainOptions options = testing::small_options(model, "1f1b", {2, 2});
    options.model.overrides = {.layers = 2, .hidden = 32, .heads = 2};
    options.data.micro_batch_size = 4;
    options.updates.clip = 1;
    options.numbers.dtype = DataType::Float32;
    const auto wide = testing::train(options, kSteps);
    options.schedule.shape.slices = 4;
    options.numbers.dtype = DataType::BFloat16;
    options.numbers.force_bfloat16 = true;
    const auto narrow = testing::train(options, kSteps);
    for (const std::ptrdiff_t first : {0, 10}) {
      const auto sum = [&](const std::vector<double>& losses) {
        return std::accumulate(losses.begin() + first, losses.begin() + first + 10, 0.0);
      };
      EXPECT_NEAR(sum(narrow.losses), sum(wide.losses), 0.005 * sum(wide.losses)) << model;
    }
  }
}

TEST(SliceBoundsTest, SlicesTakeEqualTimes) {
  const auto job = [](std::int64_t slices, const std::vector<std::int64_t>& lengths = {}) {
    PipelineShape shape{2, 2};
    shape.slices = slices;
    TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", shape);
    options.data.sequence = 1024;
    options.schedule.slice_lengths = lengths;
    return resolve_job(options);
  };
  EXPECT_THAT(job(1).slice_bounds, ElementsAre());
  const double attention = attention_share(job(4).model, 1024);
  EXPECT_GT(attention, 0.5);
  EXPECT_EQ(job(4).slice_bounds, balanced_slices(4, 1024, attention));
  EXPECT_THAT(job(4, {1}).slice_bounds, ElementsAre(0, 256, 512, 768, 1024)) << "equal lengths";
}

TEST(SliceBoundsTest, RunsThatCannotBeCutAreRefused) {
  PipelineShape shape{2, 2};
  shape.slices = 4;
  const TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", shape);
  const auto expect_refused = [](TrainOptions refused, const char* why) {
    EXPECT_THAT([&] { static_cast<void>(prepare_job(refused)); }, ThrowsMessage<ConfigError>(HasSubstr(why))) << why;
  };
  TrainOptions other = testing::small_options("bert-tiny", "1f1b", shape);
  expect_refused(other, "--slices 4: each token of model bert-tiny attends to all others");
  other = options;
  other.data.sequence = 3;
  expect_refused(other, "--slices 4: a sequence has only 3 tokens");
  other = options;
  for (const std::vector<std::int64_t>& lengths :
       std::vector<std::vector<std::int64_t>>{{8, 8}, {4, 4, 4, 5}, {8, 8, 4, -4}}) {
    other.schedule.slice_lengths = lengths;
    expect_refused(other, "must be 4 positive numbers that add up to --sequence 16");
  }
  other = options;
  other.schedule.shape.slices = 1;
  other.schedule.slice_lengths = {16};
  expect_refused(other, "--slice-lengths is for --slices");
  other = options;
  other.numbers.cuda_graphs = true;
  expect_refused(other, "--cuda-graphs");
  expect_refused(in_slices("bert-tiny", "1f1b", 2), "1f1b.json: slices 3: each token of model bert-tiny");
}

}  // namespace
}  // namespace chimera
