// T ranks that share the layers compute what one rank computes: loss, norm and gathered gradients equal those of the
// unpipelined model.
//
// Tolerance: float64 has 16 digits; another order of summation over the parts of a product costs a few of the last
// ones.

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <fstream>

#include "checkpoint/checkpoint_folder.h"
#include "core/error.h"
#include "model/tensor_parallel.h"
#include "support/scratch.h"
#include "support/training.h"
#include "train/observe/progress_report.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kTolerance = 1e-12;

/// A model file: grouped queries with biases and norms, heads wider than hidden / heads, and an odd feed-forward width.
std::string wide_heads(std::int64_t key_value_heads = 4) {
  static const testing::Scratch scratch;
  const std::string path = scratch.path(fmt::format("wide-heads-{}.toml", key_value_heads));
  std::ofstream(path) << "family = \"llama\"\nlayers = 4\nhidden = 16\nheads = 8\nhead_size = 6\n"
                         "feed_forward = 41\nvocabulary = 261\npositions = 64\ntied = true\n"
                         "attention_bias = \"all\"\nfeed_forward_bias = true\nquery_key_norm = true\n"
                      << "key_value_heads = " << key_value_heads << "\n";
  return path;
}

/// A vocabulary that neither 2 nor 4 divides.
TrainOptions options_of(const std::string& model, std::int64_t tensor_parallel, const std::string& schedule,
                        const PipelineShape& shape) {
  TrainOptions options = testing::small_options(model, schedule, shape);
  options.model.overrides = {.layers = 4, .hidden = 32, .heads = 8, .vocabulary = 261};
  if (model == "llama-tiny") options.model.overrides.key_value_heads = 4;
  if (model.ends_with(".toml")) options.model.overrides = {};
  options.parallel.tensor_parallel = tensor_parallel;
  return options;
}

testing::Trained reference(TrainOptions options, std::int64_t steps) {
  options.parallel.tensor_parallel = 1;
  options.schedule.shape.micro_batches *= options.parallel.data_parallel;
  options.parallel.data_parallel = 1;
  options.schedule.shape.slices = 1;
  options.schedule.slice_lengths.clear();
  options.memory.recompute = {};
  options.memory.gib = 0;
  return testing::train_unpipelined(options, steps);
}

/// Expects equal losses, norms and gathered gradients. Returns the largest relative difference.
double compare(const testing::Trained& trained, const TensorRanks& ranks, const testing::Trained& expected) {
  double largest = 0;
  const auto note = [&](const std::string& what, double difference) {
    EXPECT_LE(difference, kTolerance) << what;
    largest = std::max(largest, difference);
  };
  const double norm = expected.gradient_norms[0];
  note("loss", std::abs(trained.losses[0] / expected.losses[0] - 1));
  note("norm", std::abs(trained.gradient_norms[0] / norm - 1));
  EXPECT_EQ(trained.gradients.size(), expected.gradients.size());
  for (const auto& [name, gradient] : expected.gradients) {
    const auto wholes = testing::wholes_of(name, trained.gradients.at(name), ranks, gradient.front());
    for (const at::Tensor& whole : wholes) {
      EXPECT_EQ(whole.sizes(), gradient.front().sizes()) << name;
      note(name, testing::relative_error(whole, gradient.front(), norm));
    }
  }
  return largest;
}

std::string name_of(const TrainOptions& options) {
  return fmt::format("{} {} T = {}, recompute {}, tokens cut: {}", options.model.name, options.schedule.name,
                     options.parallel.tensor_parallel, to_text(options.memory.recompute.rule),
                     to_text(options.parallel.sequence_parallel));
}

void expect_same_gradients(TrainOptions options, SequenceParallel tokens = SequenceParallel::Auto) {
  options.parallel.sequence_parallel = tokens;
  SCOPED_TRACE(name_of(options));
  compare(testing::train(options, 1), prepare_job(options).ranks(), reference(options, 1));
}

const std::vector<std::string>& models() {
  static const std::vector<std::string> all = {"gpt2-tiny", "bert-tiny", "llama-tiny", wide_heads()};
  return all;
}

TEST(SplitLayersTest, EveryFamilyComputesTheWholeModelsGradients) {
  for (const std::string& model : models()) {
    for (const std::int64_t ranks : {2, 4}) {
      for (const auto tokens : {SequenceParallel::Auto, SequenceParallel::None})
        expect_same_gradients(options_of(model, ranks, "gpipe", {1, 2}), tokens);
    }
  }
}

TEST(SplitLayersTest, AnUntiedHeadHasItsOwnRows) {
  for (const char* model : {"gpt2-tiny", "bert-tiny"}) {
    for (const bool tied : {false, true}) {
      TrainOptions options = options_of(model, 2, "1f1b", {2, 2});
      options.model.overrides.tied = tied;
      expect_same_gradients(options);
    }
  }
}

// Also equal to the same layout with T = 1.
TEST(SplitLayersMatrixTest, EveryCombinationComputesTheGradientsOfOneRank) {
  const std::vector<std::pair<std::string, PipelineShape>> schedules = {
      {"gpipe", {2, 4}},   {"1f1b", {2, 4}}, {"chimera", {2, 4}},
      {"zb-h1", {2, 4}},   {"zb-v", {2, 4}}, {"interleaved-1f1b", {2, 4, 2, 2}},
      {"dualpipe", {2, 4}}};
  int combinations = 0;
  double largest = 0;
  for (const std::string& model : models()) {
    const auto unpipelined = reference(options_of(model, 1, "1f1b", {2, 4}), 1);
    for (const auto& schedule : schedules) {
      for (const char* rule : {"none", "attention", "full", "cheap:1", "full:1"}) {
        const auto with = [&](std::int64_t ranks, SequenceParallel tokens) {
          TrainOptions options = options_of(model, ranks, schedule.first, schedule.second);
          options.memory.recompute = parse_stages(kRecomputeFlag, rule);
          options.parallel.sequence_parallel = tokens;
          return options;
        };
        const auto one_rank = testing::train(with(1, SequenceParallel::Auto), 1);
        for (const std::int64_t ranks : {2, 4}) {
          for (const SequenceParallel tokens : {SequenceParallel::Auto, SequenceParallel::None}) {
            const TrainOptions options = with(ranks, tokens);
            SCOPED_TRACE(name_of(options));
            const auto trained = testing::train(options, 1);
            const TensorRanks layout = prepare_job(options).ranks();
            ++combinations;
            largest = std::max({largest, compare(trained, layout, one_rank), compare(trained, layout, unpipelined)});
          }
        }
      }
    }
  }
  fmt::print("{} combinations, largest relative difference {:.1e}\n", combinations, largest);
}

// Each rank has the matrices of keys and values whole, and adds their gradients with the other ranks.
TEST(SplitLayersTest, MoreRanksThanHeadsOfKeysAndValuesHaveThemAll) {
  for (const std::int64_t heads : {1, 2}) {
    for (const char* schedule : {"zb-h1", "chimera"}) {
      for (const StageRule rule : {StageRule::None, StageRule::Attention}) {
        TrainOptions options = options_of("llama-tiny", 4, schedule, {2, 2});
        options.model.overrides.key_value_heads = heads;
        options.memory.recompute.rule = rule;
        options.model.dropout = 0.3;
        expect_same_gradients(options);
        expect_same_gradients(options, SequenceParallel::None);
      }
    }
    TrainOptions sliced = options_of("llama-tiny", 4, "1f1b", {2, 2});
    sliced.model.overrides.key_value_heads = heads;
    sliced.schedule.shape.slices = 2;
    expect_same_gradients(sliced);
    expect_same_gradients(options_of(wide_heads(heads), 4, "zb-v", {2, 4}));
  }
}

/// GPT-2 or Llama with a number of heads that T does not divide.
TrainOptions uneven_options(const std::string& model, std::int64_t ranks, const std::string& schedule,
                            std::int64_t key_value_heads = 1) {
  TrainOptions options = options_of(model, ranks, schedule, {2, 2});
  options.model.overrides = {.layers = 4, .hidden = 28, .heads = 7, .vocabulary = 261};
  if (model != "llama-tiny") return options;
  options.model.overrides.key_value_heads = key_value_heads;
  if (key_value_heads == 3) options.model.overrides.heads = 6, options.model.overrides.hidden = 24;
  return options;
}

TEST(SplitLayersTest, RanksMayHaveUnequalNumbersOfHeads) {
  for (const std::int64_t ranks : {2, 4}) {
    for (const char* schedule : {"zb-h1", "chimera"}) {
      for (const char* model : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
        TrainOptions options = uneven_options(model, ranks, schedule);
        options.model.dropout = 0.3;
        expect_same_gradients(options);
        expect_same_gradients(options, SequenceParallel::None);
      }
      expect_same_gradients(uneven_options("llama-tiny", ranks, schedule, 7));
    }
  }
  TrainOptions groups = uneven_options("llama-tiny", 2, "1f1b", 3);
  expect_same_gradients(groups);
  groups.schedule.shape.slices = 2;
  expect_same_gradients(groups);
}

TEST(SplitLayersTest, GroupsOfDataParallelismAddRankByRank) {
  for (const ReplicaLayout layout : {ReplicaLayout::Near, ReplicaLayout::Far}) {
    TrainOptions options = options_of("gpt2-tiny", 2, "chimera", {2, 2});
    options.parallel.data_parallel = 2;
    options.parallel.replica_layout = layout;
    expect_same_gradients(options);
  }
}

TEST(SplitLayersTest, SlicesCarryTheKeysOfARanksHeads) {
  PipelineShape shape{2, 2};
  shape.slices = 2;
  for (const char* model : {"gpt2-tiny", "llama-tiny"}) expect_same_gradients(options_of(model, 2, "1f1b", shape));
}

TEST(SplitLayersTest, DropoutMasksAreThoseOfTheWholeTensor) {
  for (const std::string& model : models()) {
    for (const std::int64_t slices : {1, 2}) {
      if (model == "bert-tiny" && slices > 1) continue;
      PipelineShape shape{2, 2};
      shape.slices = slices;
      TrainOptions options = options_of(model, 4, "1f1b", shape);
      options.model.dropout = 0.3;
      expect_same_gradients(options);
      expect_same_gradients(options, SequenceParallel::None);
    }
  }
}

void expect_same_steps(OptimizerKind optimizer) {
  for (const bool shards : {false, true}) {
    SCOPED_TRACE(fmt::format("{}, sharded: {}", to_text(optimizer), shards));
    TrainOptions options = options_of("gpt2-tiny", 2, "chimera", {2, 2});
    options.updates.optimizer.kind = optimizer;
    options.updates.clip = 0.5;
    options.parallel.data_parallel = 2;
    options.memory.shard_optimizer = shards;
    options.updates.learning_rate.peak = 0.01;
    options.data.validate_every = 6;
    const auto trained = testing::train(options, 6);
    options.memory.shard_optimizer = false;
    const auto expected = reference(options, 6);
    testing::expect_losses(trained, expected);
    for (const auto& [name, parts] : trained.parameters) {
      const auto wholes =
          testing::wholes_of(name, parts, prepare_job(options).ranks(), expected.parameters.at(name).front());
      for (const at::Tensor& whole : wholes) EXPECT_TRUE(at::equal(whole, wholes[0])) << name << " drifted";
    }
  }
}

TEST(SplitLayersTest, StepsClippingShardingAndValidationAreThoseOfOneRank) { expect_same_steps(OptimizerKind::AdamW); }

// Trust ratios need the norms of whole matrices.
TEST(SplitLayersTest, LambTakesTheStepsOfOneRank) { expect_same_steps(OptimizerKind::Lamb); }

// Iterations need whole matrices.
TEST(SplitLayersTest, MuonTakesTheStepsOfOneRank) { expect_same_steps(OptimizerKind::Muon); }

void expect_same_parameters(TrainOptions options) {
  SCOPED_TRACE(name_of(options));
  const auto trained = testing::train(options, 3);
  const TensorRanks ranks = prepare_job(options).ranks();
  options.parallel.tensor_parallel = 1;
  const auto expected = testing::train(options, 3);
  for (const auto& [name, whole] : expected.parameters) {
    for (const at::Tensor& actual : testing::wholes_of(name, trained.parameters.at(name), ranks, whole.front()))
      EXPECT_LE((actual - whole.front()).abs().max().item<double>(), 1e-11) << name;
  }
}

TEST(SplitLayersTest, MuonIteratesWholeMatricesOfEveryFamily) {
  for (const std::string& model : models()) {
    for (const std::string schedule : {"zb-h1", "pipedream"}) {
      TrainOptions options = options_of(model, 4, schedule, {2, 4});
      options.model.overrides.tied = false;
      if (model == wide_heads()) {
        if (schedule == "pipedream") continue;  // tied
        options.model.overrides = {};
      }
      options.updates.optimizer = {.kind = OptimizerKind::Muon, .weight_decay = 0.1};
      options.updates.learning_rate.peak = 0.01;
      expect_same_parameters(options);
    }
  }
}

TEST(SplitLayersTest, OptimizersOfWholeMatricesAllowUnequalParts) {
  for (const OptimizerKind kind : {OptimizerKind::Muon, OptimizerKind::Lamb}) {
    for (const char* model : {"gpt2-tiny", "llama-tiny"}) {
      TrainOptions options = uneven_options(model, 4, "zb-h1");
      options.updates.optimizer = {.kind = kind, .weight_decay = 0.1};
      options.updates.learning_rate.peak = 0.01;
      options.parallel.data_parallel = 2;
      options.memory.shard_optimizer = true;
      expect_same_parameters(options);
    }
  }
}

/// Trains to the end of the job; returns the losses by step.
std::map<std::int64_t, double> run(const TrainOptions& options) {
  const Job job = prepare_job(options);
  std::map<std::int64_t, double> losses;
  run_rank_threads(static_cast<int>(job.num_ranks()), job.rank_groups(), [&](RankId rank, Transport& transport) {
    at::set_num_threads(1);
    Trainer trainer(job, rank, transport);
    trainer.run([&](const StepMetrics& metrics) {
      if (rank == RankId(0)) losses[metrics.step] = metrics.loss;
    });
    EXPECT_TRUE(trainer.finish_checkpoints());
  });
  return losses;
}

// Layouts with T = 1, 2 and 4, one and two groups, sharded optimizers. CHIMERA_LONG_TESTS tries all pairs, otherwise
// each layout resumes two others.
TEST(SplitLayersTest, EveryLayoutResumesFromEveryOther) {
  const auto layout = [](std::int64_t ranks, const std::string& schedule, std::int64_t stages, std::int64_t groups) {
    TrainOptions options = options_of("gpt2-tiny", ranks, schedule, {stages, 4 / groups});
    options.model.overrides.tied = true;
    options.parallel.data_parallel = groups;
    options.memory.shard_optimizer = groups > 1;
    options.updates.steps = 4;
    options.updates.learning_rate.peak = 0.01;
    options.updates.clip = 0.5;
    options.model.dropout = 0.1;
    return options;
  };
  const std::vector<TrainOptions> layouts = {
      layout(1, "none", 1, 1),    layout(2, "1f1b", 2, 1),  layout(4, "gpipe", 1, 1), layout(1, "chimera", 4, 1),
      layout(2, "chimera", 2, 2), layout(4, "zb-v", 2, 1),  layout(1, "1f1b", 2, 2),  layout(2, "gpipe", 1, 1),
      layout(4, "chimera", 2, 1), layout(1, "zb-h1", 2, 1), layout(2, "zb-v", 2, 2),  layout(4, "1f1b", 2, 2)};
  const bool tries_all = std::getenv("CHIMERA_LONG_TESTS") != nullptr;
  const auto undisturbed = run(layouts.front());
  for (std::size_t from = 0; from < layouts.size(); ++from) {
    const testing::Scratch scratch;
    TrainOptions saving = layouts[from];
    saving.checkpoint = {.folder = scratch.path("run"), .every = {.steps = 2, .seconds = 0}, .keep = {}};
    (void)run(saving);
    for (std::size_t to = 0; to < layouts.size(); ++to) {
      const std::size_t ahead = (to + layouts.size() - from) % layouts.size();
      if (!tries_all && ahead != 1 && ahead != 5) continue;
      TrainOptions resuming = layouts[to];
      resuming.resume.from = scratch.path("run") + "/" + checkpoint_name(2);
      const auto losses = run(resuming);
      ASSERT_EQ(losses.size(), 2U) << from << " to " << to;
      for (const auto& [step, loss] : losses)
        EXPECT_NEAR(loss, undisturbed.at(step), 1e-11 * loss) << from << " to " << to << ", step " << step;
    }
  }
}

void expect_to_resume(TrainOptions options) {
  options.updates.steps = 4;
  options.updates.learning_rate.peak = 0.01;
  const auto layout = [&](std::int64_t ranks) {
    options.parallel.tensor_parallel = ranks;
    return options;
  };
  const auto undisturbed = run(layout(1));
  for (const auto& [from, to] : {std::pair{1, 4}, {4, 1}, {2, 4}, {4, 2}}) {
    const testing::Scratch scratch;
    TrainOptions saving = layout(from);
    saving.checkpoint = {.folder = scratch.path("run"), .every = {.steps = 2, .seconds = 0}, .keep = {}};
    (void)run(saving);
    TrainOptions resuming = layout(to);
    resuming.resume.from = scratch.path("run") + "/" + checkpoint_name(2);
    const auto losses = run(resuming);
    ASSERT_EQ(losses.size(), 2U);
    for (const auto& [step, loss] : losses)
      EXPECT_NEAR(loss, undisturbed.at(step), 1e-11 * loss) << from << " to " << to;
  }
}

TEST(SplitLayersTest, RanksWithAllKeysAndValuesResumeFromPartsAndWrite) {
  TrainOptions options = options_of("llama-tiny", 1, "chimera", {2, 2});
  options.model.overrides.key_value_heads = 2;
  expect_to_resume(options);
}

TEST(SplitLayersTest, RanksWithUnequalPartsResume) {
  expect_to_resume(uneven_options("gpt2-tiny", 1, "chimera"));
  expect_to_resume(uneven_options("llama-tiny", 1, "chimera"));
}

// Less memory than all activations need, for one of T ranks.
TEST(SplitLayersTest, StagesThatRecomputeAreChosenForTheMemoryOfARank) {
  TrainOptions options = options_of("gpt2-tiny", 2, "1f1b", {2, 4});
  options.memory.recompute.rule = StageRule::Auto;
  options.memory.gib = 1;
  const auto saves = [](const TrainOptions& tried) {
    const ChosenStages stages = prepare_job(tried).stages;
    return stages.blocks.counts_blocks() || !stages.recompute.empty();
  };
  ASSERT_FALSE(saves(options));
  const auto least_memory = [&](TrainOptions tried) {
    double fits = 1;
    for (double too_little = 0; fits - too_little > 1e-7;) {
      tried.memory.gib = (fits + too_little) / 2;
      try {
        (saves(tried) ? too_little : fits) = tried.memory.gib;
      } catch (const ConfigError&) {
        too_little = tried.memory.gib;
      }
    }
    return fits;
  };
  const double memory = least_memory(options);
  options.memory.gib = 0.99 * memory;
  EXPECT_TRUE(saves(options));
  expect_same_gradients(options);
  TrainOptions whole = options;
  whole.parallel.tensor_parallel = 1;
  EXPECT_GT(least_memory(whole), memory);
}

TEST(SplitLayersTest, TokensAreCutOnlyWhereTDividesThem) {
  TrainOptions options = options_of("gpt2-tiny", 4, "1f1b", {2, 4});
  EXPECT_TRUE(prepare_job(options).cuts_tokens);
  options.data.sequence = 18;
  EXPECT_FALSE(prepare_job(options).cuts_tokens);
  expect_same_gradients(options);
  options.data.sequence = 16;
  options.schedule.shape.slices = 2;
  options.schedule.slice_lengths = {10, 6};
  EXPECT_FALSE(prepare_job(options).cuts_tokens);
  options.schedule.slice_lengths = {12, 4};
  EXPECT_TRUE(prepare_job(options).cuts_tokens);
  expect_same_gradients(options);
}

TEST(SplitLayersTest, CanonicalSumsHaveTheSameBitsInEverySchedule) {
  const auto hash_of = [](const std::string& schedule, std::int64_t data_parallel) {
    TrainOptions options = options_of("gpt2-tiny", 2, schedule, {2, 4 / data_parallel});
    options.parallel.data_parallel = data_parallel;
    options.numbers.reduction = ReductionOrder::Canonical;
    return testing::train(options, 2).parameters_hashes.back();
  };
  const std::string hash = hash_of("gpipe", 1);
  EXPECT_EQ(hash.size(), 16);
  EXPECT_EQ(hash_of("chimera", 1), hash);
  EXPECT_EQ(hash_of("zb-h1", 2), hash);
}

TEST(SplitLayersTest, TheReportSaysHowManyRanksShareLayers) {
  EXPECT_THAT(describe(prepare_job(options_of("gpt2-tiny", 2, "1f1b", {2, 4}))),
              HasSubstr("schedule 1f1b: 2 stages on 4 processes, 2 on the layers of a worker"));
}

TEST(SplitLayersTest, MoreRanksThanPartsAreRefused) {
  const auto prepare = [](std::int64_t ranks, const ModelOverrides& overrides) {
    TrainOptions options = options_of("llama-tiny", ranks, "1f1b", {2, 4});
    options.model.overrides = overrides;
    return [options] { (void)prepare_job(options); };
  };
  EXPECT_THAT(prepare(3, {.layers = 4, .hidden = 16, .heads = 4}),
              ThrowsMessage<ConfigError>(
                  HasSubstr("--tensor-parallel 3: parts of 2 of the 4 heads of model llama-tiny leave none "
                            "to the last rank; 2 is possible")));
  EXPECT_THAT(prepare(6, {.layers = 4, .hidden = 48, .heads = 12, .key_value_heads = 4}),
              ThrowsMessage<ConfigError>(HasSubstr("--tensor-parallel 6: exceeds the 4 heads of keys and values of "
                                                   "model llama-tiny, so it must be a multiple of them and divide its "
                                                   "12 heads; 4 is possible")));
}

TEST(SplitLayersTest, WhatSplitLayersDoNotHaveYetIsRefusedByName) {
  const auto expect_refused = [](const std::string& what, const std::function<void(TrainOptions&)>& change) {
    TrainOptions options = options_of("gpt2-tiny", 2, "1f1b", {2, 4});
    change(options);
    EXPECT_THAT([&] { (void)prepare_job(options); },
                ThrowsMessage<ConfigError>(HasSubstr("--tensor-parallel 2: " + what + " is not supported yet")));
  };
  expect_refused("--device cuda with --transport threads", [](TrainOptions& o) {
    o.device.kind = DeviceKind::Cuda;
    o.device.transport = TransportKind::Threads;
  });
  expect_refused("--cuda-graphs or --op-graphs", [](TrainOptions& o) {
    o.device.kind = DeviceKind::Cuda;
    o.device.transport = TransportKind::Processes;
    o.numbers.op_graphs = true;
  });
}

}  // namespace
}  // namespace chimera
