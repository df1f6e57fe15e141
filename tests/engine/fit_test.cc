// A user's own model gives the losses and weights of the unpipelined run on the same samples, for every schedule.
//
// Tolerance: float64 has 16 digits; another order of summation over micro-batches and replicas costs a few of the last
// ones.

#include "engine/fit.h"

#include <ATen/ATen.h>
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <torch/nn.h>

#include <atomic>
#include <cmath>
#include <mutex>
#include <stdexcept>
#include <string>
#include <vector>

#include "core/error.h"
#include "core/file_descriptor.h"
#include "generate/registry.h"
#include "model/dropout.h"
#include "support/fake_network.h"
#include "support/message_of.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

namespace nn = torch::nn;
using ::testing::HasSubstr;

constexpr std::int64_t kClasses = 5;
constexpr std::int64_t kIgnored = -1;  // a target that the loss ignores

/// A factory of modules in float64.
template <class Make>
LayerFactory in_double(Make make) {
  return [make]() -> Layer {
    auto module = make();
    module->to(at::kDouble);
    return module;
  };
}

/// Images [b, 3, 8, 8] and labels [b]. Some labels are ignored, so that micro-batches differ in the number of targets.
Batch images(const SampleRange& range) {
  std::vector<at::Tensor> inputs;
  const at::Tensor labels = at::empty({range.count}, at::kLong);
  for (std::int64_t i = 0; i < range.count; ++i) {
    const std::int64_t sample = range.first + i;
    const auto generator = at::make_generator<at::CPUGeneratorImpl>(range.step * 1000 + sample);
    inputs.push_back(at::randn({3, 8, 8}, generator, at::kDouble));
    labels[i] = sample % 3 == 0 ? kIgnored : (range.step + sample) % kClasses;
  }
  return {at::stack(inputs), labels};
}

std::int64_t num_labels(const at::Tensor& target) { return target.ne(kIgnored).sum().item<std::int64_t>(); }

LossSum cross_entropy(const at::Tensor& output, const at::Tensor& target) {
  const auto options = nn::functional::CrossEntropyFuncOptions().reduction(torch::kSum).ignore_index(kIgnored);
  return {nn::functional::cross_entropy(output, target, options), num_labels(target)};
}

/// Eight layers; their outputs all differ in shape.
Model small_network() {
  const auto convolution = [](std::int64_t in, std::int64_t out) {
    return in_double([=] { return nn::Sequential(nn::Conv2d(in, out, 2), nn::GroupNorm(1, out), nn::Tanh()); });
  };
  const auto linear = [](std::int64_t in, std::int64_t out) {
    return in_double([=] { return nn::Sequential(nn::Linear(in, out), KeyedDropout(0.2), nn::GELU()); });
  };
  Model model;
  model.layers = {convolution(3, 4), convolution(4, 6),
                  convolution(6, 2), in_double([] { return nn::Sequential(nn::Flatten(), nn::Linear(50, 20)); }),
                  linear(20, 18),    linear(18, 16),
                  linear(16, 14),    in_double([] { return nn::Linear(14, kClasses); })};
  model.loss = {.sum = cross_entropy, .count = num_labels};
  return model;
}

FitOptions small_options(const std::string& schedule, const PipelineShape& shape) {
  FitOptions options;
  options.schedule = schedule;
  options.shape = shape;
  options.micro_batch_size = 2;
  options.steps = 3;
  options.optimizer.kind = OptimizerKind::Sgd;
  options.learning_rate.peak = 0.1;
  options.clip = 1;
  options.threads = 1;
  return options;
}

struct Outcome {
  std::vector<double> losses;
  std::vector<double> gradient_norms;
  Parameters parameters;
};

Outcome run(const FitOptions& options) {
  Outcome result;
  result.parameters = fit(prepare_fit(small_network(), images, options), [&](const FitStep& step) {
    result.losses.push_back(step.loss);
    result.gradient_norms.push_back(step.gradient_norm);
  });
  return result;
}

/// The same samples and micro-batches on one rank.
Outcome run_unpipelined(FitOptions options) {
  options.schedule = "none";
  options.recompute = {};
  return run(options);
}

void expect_equal(const Outcome& actual, const Outcome& expected) {
  ASSERT_EQ(actual.losses.size(), expected.losses.size());
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(actual.losses[i], expected.losses[i], 1e-12) << "step " << i + 1;
    EXPECT_NEAR(actual.gradient_norms[i], expected.gradient_norms[i], 1e-12) << "step " << i + 1;
  }
  ASSERT_EQ(actual.parameters.size(), expected.parameters.size());
  for (const auto& [name, value] : expected.parameters)
    EXPECT_TRUE(at::allclose(actual.parameters.at(name), value, 1e-11, 1e-12)) << name;
}

TEST(FitTest, EveryScheduleTrainsLikeTheUnpipelinedModel) {
  const Outcome expected = run_unpipelined(small_options("none", {4, 8}));
  EXPECT_EQ(expected.parameters.count("0.0.weight"), 1U) << "global layer index and the module's own name";
  for (const Generator& generator : generators()) {
    const PipelineShape shape = default_shape(generator, 4, 8);
    const Schedule schedule = generator.generate(shape);
    if (schedule.updates || schedule.stages > 8) continue;
    SCOPED_TRACE(generator.name);
    expect_equal(run(small_options(generator.name, shape)), expected);
  }
}

TEST(FitTest, GroupsRecomputationAndCustomOrdersTrainAlike) {
  FitOptions groups = small_options("chimera", {4, 4});
  groups.data_parallel = 2;
  expect_equal(run(groups), run_unpipelined(groups));

  const Outcome expected = run_unpipelined(small_options("none", {4, 4}));
  FitOptions recomputed = small_options("chimera-zb", {4, 4});
  for (const char* stages : {"full", "1", "0,3"}) {
    SCOPED_TRACE(stages);
    recomputed.recompute = parse_stages(kRecomputeFlag, stages);
    expect_equal(run(recomputed), expected);
  }

  FitOptions own = small_options("", {});
  own.own_schedule = find_generator("zb-h1").generate({4, 4});
  own.partition = {1, 3, 3, 1};
  expect_equal(run(own), expected);
}

/// Ranks are threads over pairwise communicators as strict as NCCL's.
Outcome run_over_pairs(const FitOptions& options) {
  const FitRun run = prepare_fit(small_network(), images, options);
  const auto ranks = static_cast<int>(run.num_ranks());
  testing::FakeNetwork network(ranks, run.rank_groups(), run.communicating_pairs());
  Outcome result;
  std::mutex mutex;
  const auto train = [&](RankId rank) {
    at::set_num_threads(1);
    const auto transport =
        make_pair_transport(network.communicators(static_cast<int>(rank.value()), run.canonical.has_value()));
    RankFit trainer(run, rank, *transport);
    std::vector<FitStep> steps;
    for (std::int64_t step = 0; step < options.steps; ++step) steps.push_back(trainer.train_step(step));
    const std::lock_guard lock(mutex);
    for (const auto& [id, stage] : trainer.stages()) {
      for (const Parameter& own : stage->values()) result.parameters.emplace(own.name, own.value.detach());
    }
    if (rank != RankId(0)) return;
    for (const FitStep& step : steps) {
      result.losses.push_back(step.loss);
      result.gradient_norms.push_back(step.gradient_norm);
    }
  };
  static_cast<void>(RankThreads(ranks).run(ranks, train, [&](const std::string& why) { network.close(why); }));
  EXPECT_EQ(network.why_closed(), "");
  return result;
}

TEST(FitTest, CommunicatorsOfPairsTrainAlike) {
  const Outcome expected = run_unpipelined(small_options("none", {4, 4}));
  for (const char* schedule : {"1f1b", "chimera", "chimera-zb", "zb-v"}) {
    SCOPED_TRACE(schedule);
    expect_equal(run_over_pairs(small_options(schedule, {4, 4})), expected);
  }
  FitOptions groups = small_options("chimera", {4, 4});
  groups.data_parallel = 2;
  groups.reduction = ReductionOrder::Canonical;
  expect_equal(run_over_pairs(groups), run_unpipelined(groups));
}

TEST(FitTest, CanonicalReductionGivesEqualBitsToEveryLayout) {
  const auto outcome = [](const std::string& schedule, const PipelineShape& shape, std::int64_t groups) {
    FitOptions options = small_options(schedule, shape);
    options.data_parallel = groups;
    options.reduction = ReductionOrder::Canonical;
    return run(options);
  };
  const Outcome expected = outcome("1f1b", {2, 8}, 1);
  for (const Outcome& other : {outcome("chimera", {4, 8}, 1), outcome("zb-h1", {4, 4}, 2)}) {
    EXPECT_EQ(other.losses, expected.losses);
    EXPECT_EQ(other.gradient_norms, expected.gradient_norms);
    for (const auto& [name, value] : expected.parameters) EXPECT_TRUE(at::equal(other.parameters.at(name), value));
  }
}

TEST(FitTest, OnlyCanonicalRunsUseDeterministicKernels) {
  const auto is_deterministic = [] {
    const at::Context& torch = at::globalContext();
    return torch.deterministicAlgorithms() && !torch.deterministicAlgorithmsWarnOnly();
  };
  FitOptions options = small_options("1f1b", {2, 4});
  for (const ReductionOrder reduction : {ReductionOrder::Canonical, ReductionOrder::Natural}) {
    options.reduction = reduction;
    Model model = small_network();
    std::atomic<int> deterministic_losses = 0;
    std::atomic<int> losses = 0;
    model.loss.sum = [&, sum = model.loss.sum](const at::Tensor& output, const at::Tensor& target) {
      ++losses;
      if (is_deterministic()) ++deterministic_losses;
      return sum(output, target);
    };
    static_cast<void>(fit(prepare_fit(model, images, options)));
    EXPECT_GT(losses, 0);
    EXPECT_EQ(deterministic_losses, reduction == ReductionOrder::Canonical ? losses.load() : 0);
    EXPECT_FALSE(is_deterministic());
  }
}

TEST(FitTest, HalvedMicroBatchesTrainAlike) {
  FitOptions halved = small_options("chimera", {.stages = 4, .micro_batches = 8, .scale = ScaleMethod::Halving});
  FitOptions reference = small_options("none", {4, 16});
  reference.micro_batch_size = 1;
  expect_equal(run(halved), run_unpipelined(reference));
}

/// Values of each parameter on every rank that holds it, before the first step.
std::map<std::string, std::vector<at::Tensor>> initial_values(const FitRun& run) {
  std::map<std::string, std::vector<at::Tensor>> values;
  std::mutex mutex;
  run_rank_threads(static_cast<int>(run.num_ranks()), run.rank_groups(), [&](RankId rank, Transport& transport) {
    const RankFit trainer(run, rank, transport);
    const std::lock_guard lock(mutex);
    for (const auto& [id, stage] : trainer.stages()) {
      for (const Parameter& parameter : stage->parameters())
        values[parameter.name].push_back(parameter.value.detach().clone());
    }
  });
  return values;
}

TEST(FitTest, ReplicasStartEqualWithAnyFactory) {
  std::atomic<int> made = 0;
  Model model = small_network();
  for (LayerFactory& factory : model.layers) {
    factory = in_double([&made] {
      nn::Linear layer(2, 2);
      nn::init::constant_(layer->weight, ++made);
      return layer;
    });
  }
  const auto points = [](const SampleRange& range) {
    return Batch{at::zeros({range.count, 2}, at::kDouble), at::zeros({range.count}, at::kLong)};
  };
  const auto values = initial_values(prepare_fit(model, points, small_options("chimera", {4, 4})));
  EXPECT_EQ(made, 16) << "each rank makes the layers of its own stages alone";
  for (const auto& [name, copies] : values) {
    ASSERT_EQ(copies.size(), 2U) << name;
    EXPECT_TRUE(at::equal(copies[0], copies[1])) << name;
  }
}

TEST(FitTest, RanksOverGlooTrainAlike) {
  const FitOptions options = small_options("chimera", {2, 2});
  const FitRun run = prepare_fit(small_network(), images, options);
  const FileDescriptor store(::memfd_create("store", MFD_CLOEXEC));
  std::vector<std::vector<double>> losses(2);
  const auto train = [&](RankId rank) {
    at::set_num_threads(1);
    const auto transport = connect_gloo({.rank = static_cast<int>(rank.value()),
                                         .world_size = 2,
                                         .rendezvous = file_rendezvous("/proc/self/fd/" + std::to_string(store.get())),
                                         .groups = run.rank_groups()});
    RankFit trainer(run, rank, *transport);
    for (std::int64_t step = 0; step < options.steps; ++step)
      losses[rank.index()].push_back(trainer.train_step(step).loss);
  };
  EXPECT_FALSE(RankThreads(2).run(2, train, [](const std::string& why) { ADD_FAILURE() << why; }));
  const std::vector<double> expected = run_unpipelined(options).losses;
  EXPECT_EQ(losses[0], losses[1]);
  for (std::size_t i = 0; i < expected.size(); ++i) EXPECT_NEAR(losses[0][i], expected[i], 1e-12);
}

std::string refusal(const Model& model, const FitOptions& options, const Data& data = images) {
  return testing::message_of<Error>([&] { fit(prepare_fit(model, data, options)); }, "not refused");
}

TEST(FitTest, ModulesWithBuffersTrainWithoutReplicas) {
  Model model = small_network();
  model.layers[2] = in_double([] { return nn::Sequential(nn::Conv2d(6, 2, 2), nn::BatchNorm2d(2)); });
  EXPECT_EQ(refusal(model, small_options("1f1b", {4, 4})), "not refused");
  const Parameters trained = fit(prepare_fit(model, images, small_options("zb-h1", {4, 4})));
  EXPECT_EQ(trained.at("2.1.num_batches_tracked").item<std::int64_t>(), 3 * 4) << "steps times micro-batches";
  EXPECT_THAT(refusal(model, small_options("chimera", {4, 4})), HasSubstr("layer 2: torch::nn::BatchNorm2dImpl (1)"));
}

TEST(FitTest, SaysWhatIsWrongWithAModel) {
  Model in_place = small_network();
  in_place.layers[4] =
      in_double([] { return nn::Sequential(nn::ReLU(nn::ReLUOptions(/*inplace=*/true)), nn::Linear(20, 18)); });
  EXPECT_THAT(refusal(in_place, small_options("1f1b", {4, 4})),
              HasSubstr("stage 2 (layers 4 to 5) writes to its input"));

  Model misfit = small_network();
  misfit.layers[5] = in_double([] { return nn::Linear(17, 16); });
  EXPECT_THAT(refusal(misfit, small_options("chimera", {4, 4})),
              HasSubstr("stage 2, layer 5 (torch::nn::LinearImpl), on an input [2, 18] of Double"));

  Model thrower = small_network();
  thrower.layers[6] = []() -> Layer { throw std::runtime_error("no such file"); };
  EXPECT_THAT(refusal(thrower, small_options("1f1b", {4, 4})), HasSubstr("layer 6 could not be made: no such file"));
}

TEST(FitTest, SaysWhatIsWrongWithData) {
  const auto uneven = [](const SampleRange& range) {
    return images({range.step, range.first, range.step == 1 ? range.count + 1 : range.count});
  };
  EXPECT_THAT(refusal(small_network(), small_options("1f1b", {4, 4}), uneven), HasSubstr("must have one shape"));
  const auto nothing = [](const SampleRange& range) {
    Batch batch = images(range);
    batch.target.fill_(kIgnored);
    return batch;
  };
  EXPECT_THAT(refusal(small_network(), small_options("1f1b", {4, 4}), nothing), HasSubstr("step 1: Loss::count is 0"));
}

TEST(FitTest, StagesWithoutTrainedParametersTrainTheOthers) {
  const auto mixed = [] {
    Model model = small_network();
    const LayerFactory convolution = model.layers[0];
    model.layers[0] = [convolution] {
      const Layer layer = convolution();
      for (at::Tensor parameter : layer.module()->parameters()) parameter.set_requires_grad(false);
      return layer;
    };
    model.layers[4] = [] { return nn::Tanh(); };
    model.layers[5] = in_double([] { return nn::Linear(20, 16); });
    return model;
  };
  FitOptions options = small_options("zb-h1", {4, 4});
  options.partition = {1, 3, 1, 3};
  const Parameters trained = fit(prepare_fit(mixed(), images, options));
  options = small_options("none", {1, 4});
  const Parameters expected = fit(prepare_fit(mixed(), images, options));
  ASSERT_EQ(trained.size(), expected.size());
  for (const auto& [name, value] : expected) EXPECT_TRUE(at::allclose(trained.at(name), value, 1e-11, 1e-12)) << name;

  Model frozen = small_network();
  frozen.layers.assign(4, [] { return nn::Tanh(); });
  EXPECT_THAT(refusal(frozen, small_options("1f1b", {4, 4})), HasSubstr("no layer has parameters to train"));
}

TEST(FitTest, LaterStagesSeeRealDataFirst) {
  std::atomic<int> zeros = 0;
  Model model = small_network();
  const LayerFactory linear = model.layers[5];
  model.layers[5] = [linear, &zeros] {
    return Layer([layer = linear(), &zeros](const at::Tensor& x) {
      if (x.abs().sum().item<double>() == 0) ++zeros;
      return layer(x);
    });
  };
  const FitRun run = prepare_fit(model, images, small_options("1f1b", {8, 8}));
  run_rank_threads(8, run.rank_groups(),
                   [&](RankId rank, Transport& transport) { const RankFit trainer(run, rank, transport); });
  EXPECT_EQ(zeros, 0);
}

TEST(FitTest, RefusesPlansThatDoNotFit) {
  const Model model = small_network();
  EXPECT_THAT(refusal(model, small_options("chimer", {4, 4})), HasSubstr("chimera"));
  EXPECT_THAT(refusal(model, small_options("pipedream", {4, 4})), HasSubstr("asynchronous"));
  EXPECT_THAT(refusal(model, small_options("1f1b", {16, 4})), HasSubstr("cannot cut 8 layers into 16 stages"));
  FitOptions options = small_options("1f1b", {4, 4});
  options.reduction = ReductionOrder::Canonical;
  options.reduction_blocks = 3;
  EXPECT_THAT(refusal(model, options), HasSubstr("FitOptions::reduction_blocks 3: 4 micro-batches"));
  options.recompute = parse_stages(kRecomputeFlag, "0,4");
  EXPECT_THAT(refusal(model, options), HasSubstr("recompute 0,4: expected none, full, or stages of 0 to 3"));
  options.recompute = parse_stages(kRecomputeFlag, "attention");
  EXPECT_THAT(refusal(model, options), HasSubstr("recompute attention: only GPT-2, BERT and Llama models have it"));
  options.recompute = parse_stages(kRecomputeFlag, "auto");
  EXPECT_THAT(refusal(model, options), HasSubstr("recompute auto: expected none, full, or stages of 0 to 3"));
  options.partition = {2, 2, 2, 3};
  EXPECT_THAT(refusal(model, options), HasSubstr("[2, 2, 2, 3] must be 4 positive numbers that add up to 8"));
}

TEST(FitTest, TargetsMaySumElsewhere) {
  FitRun run = prepare_fit(small_network(), images, small_options("none", {1, 4}));
  run_rank_threads(1, run.rank_groups(), [&](RankId rank, Transport& transport) {
    RankFit trainer(run, rank, transport);
    const double loss = trainer.validation_loss(0);
    run.sum_targets = [](double own) { return 4 * own; };
    EXPECT_DOUBLE_EQ(trainer.validation_loss(0), loss / 4);
  });
}

TEST(FitTest, CustomUpdateReplacesTheOptimizer) {
  const FitRun run = prepare_fit(small_network(), images, small_options("none", {1, 4}));
  run_rank_threads(1, run.rank_groups(), [&](RankId rank, Transport& transport) {
    RankFit trainer(run, rank, transport);
    ModuleStage& stage = *trainer.stages().at(StageId(0));
    const double before = trainer.validation_loss(0);
    double seen = 0;
    const FitStep step = trainer.train_step(0, [&](double norm) {
      seen = norm;
      const at::NoGradGuard no_graph;
      for (const Parameter& parameter : stage.parameters()) at::Tensor(parameter.value).zero_();
    });
    EXPECT_DOUBLE_EQ(step.loss, before);
    EXPECT_EQ(seen, step.gradient_norm);
    EXPECT_GT(seen, 0);
    EXPECT_GT(stage.gradients().abs().sum().item<double>(), 0);
    EXPECT_NEAR(trainer.validation_loss(0), std::log(kClasses), 1e-12);
  });
}

TEST(FitTest, ForeignExceptionsKeepTheirCause) {
  const auto raised = std::make_exception_ptr(std::out_of_range("as it was"));
  const auto expect_raised = [&](const LayerFactory& layer, const std::string& message) {
    Model model = small_network();
    model.layers[6] = layer;
    try {
      fit(prepare_fit(model, images, small_options("1f1b", {4, 4})));
      ADD_FAILURE() << "nothing was thrown";
    } catch (const UserCodeError& error) {
      EXPECT_EQ(error.cause(), raised);
      EXPECT_THAT(error.what(), HasSubstr(message));
    }
  };
  expect_raised(
      [&]() -> Layer {
        return Layer([&](const at::Tensor&) -> at::Tensor { throw UserCodeError("in short", raised); });
      },
      "in short");
  expect_raised([&]() -> Layer { throw UserCodeError("in short", raised); }, "layer 6 could not be made: in short");
}

}  // namespace
}  // namespace chimera
