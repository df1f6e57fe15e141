// Layers on a GPU: kernels per block, and equality with the CPU's layers. The GPU is a fake device, whose kernels are
// the CPU's (support/fake_device.h).

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <functional>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "core/masked_tokens.h"
#include "model/dropout.h"
#include "model/layers.h"
#include "model/linear.h"
#include "model/linear_cross_entropy.h"
#include "model/llama_layers.h"
#include "model/make_stage.h"
#include "model/tensor_parallel.h"
#include "model_config/config.h"
#include "model_config/footprint.h"
#include "runtime/memory_meter.h"
#include "support/fake_device.h"
#include "transport/stream.h"

namespace chimera {
namespace {

using testing::FakeDevice;

const at::Device kDevice(testing::kFakeDevice, 0);

class DeviceLayersTest : public ::testing::Test {
 protected:
  DeviceLayersTest() {
    FakeDevice::install();
    FakeDevice::get().clear();
  }
};

/// A stage with one block or more, between other stages.
std::unique_ptr<Stage> inner_stage(const ModelConfig& config, std::int64_t blocks, at::ScalarType type,
                                   at::Device device) {
  return make_stage(config, {.first_layer = 0, .end_layer = blocks}, type, initial_values_of(1), TiedLeaves{}, device);
}

struct Kernels {
  std::vector<std::string> forward;
  std::vector<std::string> backward;
};

/// Kernels of a whole backward (B), or of I and W.
Kernels kernels_of(const std::string& model, std::int64_t blocks, bool is_split) {
  ModelConfig config = find_model(model);
  config.layers = blocks;
  const auto stage = inner_stage(config, blocks, at::kBFloat16, kDevice);
  const at::Tensor input = at::rand({2, 8, config.hidden}).to(at::kBFloat16).to(kDevice).requires_grad_();
  {
    const at::NoGradGuard no_graph;
    (void)stage->forward(input, {});  // makes the table of rotations
  }
  const auto queue = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(queue);
  Kernels kernels;
  FakeDevice::get().clear();
  const at::Tensor output = stage->forward(input, {});
  kernels.forward = FakeDevice::get().kernels();
  const at::Tensor gradient = at::ones(output.sizes(), output.options());
  FakeDevice::get().clear();
  if (is_split) queue->defer();
  torch::autograd::backward({output}, {gradient});
  queue->run();
  kernels.backward = FakeDevice::get().kernels();
  return kernels;
}

/// Prints how often each op was called.
std::string counts(const std::vector<std::string>& kernels) {
  std::map<std::string, int> times;
  for (const std::string& name : kernels) ++times[name];
  return fmt::format("{}", times);
}

struct BlockKernels {
  std::string model;
  std::size_t forward;
  std::size_t backward;
  std::size_t added;  // more per backward of a stage
};

class KernelsPerBlockTest : public DeviceLayersTest, public ::testing::WithParamInterface<BlockKernels> {};

// In bfloat16 with float32 master weights, as in training on a GPU. docs/devices.md has the numbers.
TEST_P(KernelsPerBlockTest, AreThoseOfTheDocuments) {
  const auto& [model, forward, backward, added] = GetParam();
  for (const bool is_split : {false, true}) {
    const Kernels one = kernels_of(model, 1, is_split);
    const Kernels three = kernels_of(model, 3, is_split);
    EXPECT_EQ(one.forward.size(), forward) << counts(one.forward);
    EXPECT_EQ(three.forward.size(), 3 * forward) << counts(three.forward);
    EXPECT_EQ(one.backward.size(), backward + added) << counts(one.backward);
    EXPECT_EQ(three.backward.size(), 3 * backward + added) << counts(three.backward);
  }
}

INSTANTIATE_TEST_SUITE_P(Models, KernelsPerBlockTest,
                         ::testing::Values(BlockKernels{"gpt2-tiny", 10, 23, 2}, BlockKernels{"llama-tiny", 15, 26, 2}),
                         [](const auto& info) { return info.param.model.substr(0, info.param.model.find('-')); });

/// With packed matrices, a view would keep a whole product.
TEST_F(DeviceLayersTest, BlocksKeepWhatTheFootprintCounts) {
  at::set_num_threads(1);
  for (const char* name : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    const ModelConfig config = find_model(name);
    const Workload workload{.micro_batch_size = 3, .sequence = 64, .compute_bytes = 2};
    const StageLayers layers{.first_layer = 0, .end_layer = 3};
    MemoryMeter meter(1);
    const MemoryMeter::Recording recording(meter, RankId(0));
    const auto stage = make_stage(config, layers, at::kBFloat16, initial_values_of(1), TiedLeaves{}, kDevice);
    const at::Tensor input = at::rand({3, 64, config.hidden}).to(at::kBFloat16).to(kDevice).requires_grad_();
    MicroBatch batch;
    if (!is_causal(config.family)) batch.tokens = batch.targets = at::zeros({3, 64}, at::kLong).to(kDevice);
    {
      const at::NoGradGuard no_graph;
      (void)stage->forward(input, batch);  // makes the table of rotations
    }
    const auto queue = c10::make_intrusive<WeightGradients>();
    const WeightGradients::Scope scope(queue);
    const auto before = static_cast<double>(meter.usage(RankId(0)).live);
    const at::Tensor output = stage->forward(input, batch);
    const double kept = static_cast<double>(meter.usage(RankId(0)).live) - before + static_cast<double>(input.nbytes());
    const double said = stage_footprint(config, layers, workload).memory.activations;
    EXPECT_NEAR(kept, said, 0.01 * said) << name;
  }
}

/// One rank of a group whose others compute nothing.
class LoneRank final : public TensorGroup {
 public:
  using TensorGroup::TensorGroup;
  void sum(const at::Tensor& /*values*/) override {}
  std::vector<at::Tensor> exchange(const at::Tensor& values) override {
    return std::vector<at::Tensor>(static_cast<std::size_t>(place().ranks), values);
  }
  at::Tensor sum_own_share(const at::Tensor& values) override {
    return values.narrow(1, 0, values.size(1) / place().ranks).clone();
  }
};

/// What a stage's forward needs besides hidden states.
MicroBatch batch_for(const ModelConfig& config, const StageLayers& layers, std::int64_t samples, std::int64_t tokens) {
  MicroBatch batch;
  if (is_causal(config.family) && !layers.embedding && !layers.head) return batch;
  batch.tokens = at::zeros({samples, tokens}, at::kLong);
  batch.targets = at::zeros({samples, tokens}, at::kLong);
  if (!is_causal(config.family)) {
    batch.targets.narrow(1, masked_count(tokens), tokens - masked_count(tokens)).fill_(kIgnored);
    batch.token_types = at::zeros({samples, tokens}, at::kLong).to(kDevice);
    batch.next_sentence = at::zeros({samples}, at::kLong).to(kDevice);
  }
  batch.tokens = batch.tokens.to(kDevice);
  batch.targets = batch.targets.to(kDevice);
  return batch;
}

/// The largest memory of a step: all forwards of a warm-up, then a backward. For every family and type, with T = 1 and
/// 2, with every level of recomputation, and with the embedding or the head.
TEST_F(DeviceLayersTest, StepsPeakAsTheFootprintSays) {
  constexpr std::int64_t kInFlight = 4;
  at::set_num_threads(1);
  std::vector<std::tuple<const char*, at::ScalarType, std::int64_t, StageLayers>> cases;
  const StageLayers inner{.first_layer = 0, .end_layer = 3};
  for (const char* name : {"gpt2-tiny", "bert-tiny", "llama-tiny"}) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16}) {
      for (const std::int64_t ranks : {1, 2}) cases.emplace_back(name, type, ranks, inner);
      for (const RecomputeLevel level : kRecomputeLevels)
        std::get<StageLayers>(cases.emplace_back(name, type, 1, inner)).levels = BlockLevels::at(level, 3);
      std::get<StageLayers>(cases.emplace_back(name, type, 1, inner)).embedding = true;
      std::get<StageLayers>(cases.emplace_back(name, type, 1, inner)).head = true;
    }
  }
  for (const auto& [name, type, ranks, layers] : cases) {
    const ModelConfig config = find_model(name);
    const Workload workload{.micro_batch_size = 3,
                            .sequence = 128,
                            .compute_bytes = type == at::kFloat ? 4 : 2,
                            .logits_of_chunk = kLogitsOfGpuChunk,
                            .tensor_parallel = ranks};
    LoneRank group({.rank = 0, .ranks = ranks}, /*cuts_tokens=*/ranks > 1);
    MemoryMeter meter(1);
    const MemoryMeter::Recording recording(meter, RankId(0));
    const auto stage =
        make_stage(config, layers, type, initial_values_of(1), TiedLeaves{}, kDevice, ranks > 1 ? &group : nullptr);
    const at::Tensor state = at::rand({3, workload.sequence / ranks, config.hidden}).to(type).to(kDevice);
    const MicroBatch batch = batch_for(config, layers, 3, workload.sequence);
    const auto input = [&, embedding = layers.embedding] {
      return embedding ? at::Tensor() : state.clone().requires_grad_();
    };
    {
      const at::NoGradGuard no_graph;
      (void)stage->forward(input(), batch);  // makes the table of rotations
    }
    const auto before = static_cast<double>(meter.usage(RankId(0)).live);
    const auto queue = c10::make_intrusive<WeightGradients>();
    const WeightGradients::Scope scope(queue);
    std::vector<at::Tensor> inputs;
    std::vector<at::Tensor> outputs;
    for (std::int64_t m = 0; m < kInFlight; ++m) {
      inputs.push_back(input());
      outputs.push_back(stage->forward(inputs.back(), batch));
    }
    (void)meter.take_sample(RankId(0));
    torch::autograd::backward({std::exchange(outputs.front(), {})}, {layers.head ? at::Tensor() : state.clone()});
    const double peak = static_cast<double>(meter.take_sample(RankId(0)).peak) - before;
    const StageFootprint said = stage_footprint(config, layers, workload);
    // The gradient that has arrived is a message.
    const double planned = kInFlight * said.memory.activations + said.working_set(OpKind::Backward) +
                           (layers.head ? 0 : static_cast<double>(state.nbytes()));
    EXPECT_NEAR(peak, planned, 0.01 * planned)
        << name << ", " << type << ", T = " << ranks << ", levels "
        << fmt::format("{}, embedding {}, head {}", fmt::join(layers.levels.counts, ","), layers.embedding,
                       layers.head);
  }
}

using Arguments = std::vector<at::Tensor>;
using Function = std::function<at::Tensor(const Arguments&)>;

/// The result, and the gradients of all arguments for a given gradient of the result.
std::vector<at::Tensor> results_of(const Function& function, const Arguments& values, const at::Tensor& gradient,
                                   at::Device device) {
  Arguments arguments;
  for (const at::Tensor& value : values) arguments.push_back(value.detach().clone().to(device).requires_grad_());
  const auto queue = c10::make_intrusive<WeightGradients>();
  at::Tensor result;
  {
    const WeightGradients::Scope scope(queue);
    result = function(arguments);
  }
  torch::autograd::backward({result}, {gradient.to(device)});
  std::vector<at::Tensor> results = {result.detach().cpu()};
  for (const at::Tensor& argument : arguments) results.push_back(argument.grad().cpu());
  return results;
}

/// Results and gradients differ by at most `tolerance` times the largest element.
void expect_close(const std::vector<at::Tensor>& actual, const std::vector<at::Tensor>& expected, double tolerance) {
  ASSERT_EQ(actual.size(), expected.size());
  for (std::size_t i = 0; i < actual.size(); ++i) {
    const at::Tensor right = expected[i].to(at::kDouble);
    const double error = (actual[i].to(at::kDouble) - right).abs().max().item<double>();
    EXPECT_LE(error, tolerance * right.abs().max().item<double>()) << i;
  }
}

void expect_as_on_cpu(const Function& function, const Arguments& values) {
  at::manual_seed(1);
  const at::Tensor gradient = at::randn_like(function(values).detach());
  const auto on_cpu = results_of(function, values, gradient, at::kCPU);
  expect_close(results_of(function, values, gradient, kDevice), on_cpu, 1e-13);
  Arguments narrow;
  for (const at::Tensor& value : values) narrow.push_back(value.to(at::kBFloat16));
  expect_close(results_of(function, narrow, gradient.to(at::kBFloat16), kDevice), on_cpu, 0.02);
}

at::Tensor random(at::IntArrayRef sizes) { return at::randn(sizes, at::kDouble); }

TEST_F(DeviceLayersTest, NormsAreTheCpus) {
  at::manual_seed(2);
  const Arguments values = {random({2, 7, 24}), random({24}), random({24})};
  expect_as_on_cpu([](const Arguments& a) { return layer_norm(a[0], {a[1], a[2], 1e-5}); }, values);
  expect_as_on_cpu([](const Arguments& a) { return rms_norm(a[0], {a[1], 1e-5}); }, {values[0], values[1]});
}

/// LibTorch's CPU has no fused kernels; it composes the op.
TEST_F(DeviceLayersTest, RmsNormIsLibTorchs) {
  at::manual_seed(3);
  const Arguments values = {random({2, 7, 24}), random({24})};
  const at::Tensor gradient = random({2, 7, 24});
  const auto theirs = [](const Arguments& a) { return std::get<0>(at::_fused_rms_norm(a[0], {24}, a[1], 1e-5)); };
  const auto ours = [](const Arguments& a) { return rms_norm(a[0], {a[1], 1e-5}); };
  expect_close(results_of(ours, values, gradient, kDevice), results_of(theirs, values, gradient, at::kCPU), 1e-13);
}

TEST_F(DeviceLayersTest, RotationIsTheCpus) {
  ModelConfig config = find_model("llama-tiny");
  config.head_size = 6;
  const RotaryTable table = rotary_table(config, 9, at::kDouble);
  const auto rotated = [&](const Arguments& a) {
    const at::TensorOptions options = a[0].options();
    const at::Tensor part = a[0].narrow(2, 6, 12);  // rows with gaps, as in a packed projection
    return rotate(part, {table.cosine.to(options), table.sine.to(options)});
  };
  at::manual_seed(4);
  expect_as_on_cpu(rotated, {random({2, 9, 24})});
  FakeDevice::get().clear();
  const RotaryTable there = {table.cosine.to(kDevice), table.sine.to(kDevice)};
  const at::Tensor input = random({2, 9, 18}).to(kDevice);
  FakeDevice::get().clear();
  (void)rotate(input, there);
  EXPECT_EQ(FakeDevice::get().kernels().size(), 3U);
}

TEST_F(DeviceLayersTest, PackedSwigluIsSwiglu) {
  at::manual_seed(5);
  const auto parts = [](const Arguments& a) {
    const auto halves = a[0].chunk(2, -1);
    return swiglu(halves[0], halves[1]);
  };
  const auto packed = [](const Arguments& a) { return swiglu(a[0]); };
  const Arguments values = {random({3, 5, 14})};
  const at::Tensor gradient = random({3, 5, 7});
  for (const at::Device device : {at::Device(at::kCPU), kDevice})
    expect_close(results_of(packed, values, gradient, device), results_of(parts, values, gradient, at::kCPU), 1e-14);
}

TEST_F(DeviceLayersTest, BiasGradientsAreTheCpus) {
  at::manual_seed(6);
  const auto twice = [](const Arguments& a) {  // adds to the same gradients twice
    const Linear layer{a[1], a[2], WeightLayout::OutIn};
    return linear(linear(a[0], layer), layer);
  };
  expect_as_on_cpu(twice, {random({2, 3, 5}), random({5, 5}), random({5})});
}

TEST_F(DeviceLayersTest, TermsAreAddedAtTheEndOfBackwardOrOfW) {
  for (const bool is_split : {false, true}) {
    const auto queue = c10::make_intrusive<WeightGradients>();
    const Linear layer{at::ones({3, 2}, kDevice).requires_grad_(), at::zeros({3}, kDevice).requires_grad_()};
    at::Tensor output;
    {
      const WeightGradients::Scope scope(queue);
      output = linear(at::ones({4, 2}, kDevice), layer);
    }
    if (is_split) queue->defer();
    torch::autograd::backward({output}, {at::ones({4, 3}, kDevice)});
    EXPECT_EQ(layer.bias.grad().defined(), !is_split);
    queue->run();
    EXPECT_TRUE(at::equal(layer.bias.grad().cpu(), at::full({3}, 4.0)));
  }
}

/// Results and the flat gradient of a stage in bfloat16.
std::vector<at::Tensor> stage_results(const ModelConfig& config, at::Device device, bool is_split) {
  const auto stage = inner_stage(config, config.layers, at::kBFloat16, device);
  at::manual_seed(7);
  const at::Tensor input = at::randn({2, 8, config.hidden}).to(at::kBFloat16).to(device).requires_grad_();
  const at::Tensor gradient = at::randn({2, 8, config.hidden}).to(at::kBFloat16).to(device);
  const auto queue = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(queue);
  const at::Tensor output = stage->forward(input, {});
  if (is_split) queue->defer();
  torch::autograd::backward({output}, {gradient});
  queue->run();
  return {output.detach().cpu(), input.grad().cpu(), stage->gradients().cpu()};
}

TEST_F(DeviceLayersTest, StagesInBfloat16AreTheCpus) {
  for (const std::string model : {"gpt2-tiny", "llama-tiny", "bert-tiny"}) {
    SCOPED_TRACE(model);
    ModelConfig config = find_model(model);
    config.layers = 2;
    const auto whole = stage_results(config, kDevice, false);
    expect_close(whole, stage_results(config, at::kCPU, false), 0.05);
    const auto split = stage_results(config, kDevice, true);
    for (std::size_t i = 0; i < whole.size(); ++i) EXPECT_TRUE(at::equal(split[i], whole[i])) << i;
  }
}

/// The copies of packed matrices follow their master weights.
TEST_F(DeviceLayersTest, PackedMatricesAreUpdated) {
  ModelConfig config = find_model("llama-tiny");
  config.layers = 1;
  const auto stage = inner_stage(config, 1, at::kBFloat16, kDevice);
  const at::Tensor input = at::ones({1, 4, config.hidden}, at::TensorOptions(kDevice).dtype(at::kBFloat16));
  {
    const at::NoGradGuard no_graph;
    for (const Parameter& parameter : stage->parameters()) parameter.value.zero_();
  }
  stage->update_copies();
  EXPECT_TRUE(at::equal(stage->forward(input, {}).cpu(), input.cpu())) << "only the residual connections are left";
}

TEST_F(DeviceLayersTest, AMaskIsTwoKernelsAndRepeats) {
  const Dropout masks = {.probability = 0.3, .seed = 11, .step = 5, .first_sample = 0xffff'fffeLL, .layer = 2};
  constexpr auto kSite = DropoutSite::AttentionOutput;
  for (const at::ScalarType type : {at::kFloat, at::kDouble, at::kBFloat16}) {
    const at::Tensor input = at::ones({3, 40, 50}, at::TensorOptions(kDevice).dtype(type));
    FakeDevice::get().clear();
    const at::Tensor dropped = dropout(input, masks, kSite);
    EXPECT_EQ(FakeDevice::get().kernels().size(), 2U);
    EXPECT_TRUE(FakeDevice::get().waits().empty());
    const at::Tensor host = dropped.cpu();
    EXPECT_NEAR(host.eq(0).to(at::kDouble).mean().item<double>(), 0.3, 5 * std::sqrt(0.3 * 0.7 / 6000));
    EXPECT_NEAR(host.max().item<double>(), 1 / 0.7, 0.01);
    EXPECT_TRUE(at::equal(dropout(input, masks, kSite).cpu(), host));
    const at::Tensor transposed = input.transpose(1, 2).contiguous().transpose(1, 2);
    EXPECT_TRUE(at::equal(dropout(transposed, masks, kSite).cpu(), host));
    const at::Tensor leaf = input.detach().clone().requires_grad_();
    torch::autograd::backward({dropout(leaf, masks, kSite)}, {input});
    EXPECT_TRUE(at::equal(leaf.grad().cpu(), host));
  }
}

TEST_F(DeviceLayersTest, MasksOfOtherKeysAreIndependent) {
  const Dropout one = {.probability = 0.4, .seed = 1, .step = 2, .first_sample = 8, .layer = 3};
  const auto mask = [](const Dropout& masks, DropoutSite site = DropoutSite::FeedForwardOutput) {
    return dropout(at::ones({4, 5, 1000}, kDevice), masks, site).cpu();
  };
  std::vector<at::Tensor> others = {mask(one.in_layer(4)), mask(one, DropoutSite::AttentionOutput)};
  Dropout other = one;
  ++other.seed;
  others.push_back(mask(other));
  for (std::int64_t Dropout::*field : {&Dropout::step, &Dropout::first_sample}) {
    other = one;
    ++(other.*field);
    others.push_back(mask(other));
  }
  others.push_back(mask(one).roll(1, 0));  // another sample
  constexpr double kExpected = 0.4 * 0.4 + 0.6 * 0.6;
  for (const at::Tensor& each : others) {
    const double agreement = each.eq(mask(one)).to(at::kDouble).mean().item<double>();
    EXPECT_NEAR(agreement, kExpected, 5 * std::sqrt(kExpected * (1 - kExpected) / 20'000));
  }
}

/// Generation attends from one token to more keys each time, for which cuDNN would make a plan each time.
TEST_F(DeviceLayersTest, OneTokenAttendsToEarlierOnesByFlashAttention) {
  constexpr std::int64_t kHeads = 4;
  for (const std::int64_t shared : {kHeads, std::int64_t{2}}) {
    for (const std::int64_t earlier : {1, 6, 7}) {
      SCOPED_TRACE(fmt::format("{} heads of keys, {} earlier tokens", shared, earlier));
      const auto numbers = [&](std::int64_t tokens, std::int64_t heads) {
        return at::randn({2, tokens, heads * 8}).to(at::kBFloat16);
      };
      const QueryKeyValue own{numbers(1, kHeads), numbers(earlier + 1, shared), numbers(earlier + 1, shared)};
      const at::NoGradGuard no_graph;
      FakeDevice::get().clear();
      const at::Tensor found =
          causal_attention({own.query.to(kDevice), own.key.to(kDevice), own.value.to(kDevice)}, kHeads);
      const auto kernels = FakeDevice::get().kernels();
      EXPECT_EQ(std::ranges::count(kernels, "aten::_scaled_dot_product_flash_attention"), 1) << counts(kernels);
      EXPECT_TRUE(at::allclose(found.cpu(), causal_attention(own, kHeads), 1e-2, 1e-2));
    }
  }
}

/// The weight gradient of each chunk reads and writes the whole matrix.
TEST_F(DeviceLayersTest, TheHeadHasLargerChunksThanOnTheCpu) {
  constexpr std::int64_t kVocabulary = 70'000;
  constexpr std::int64_t kTokens = 256;
  ASSERT_EQ(chunks_of(kTokens, kVocabulary).count(), 2);
  const Linear head{at::ones({kVocabulary, 2}, kDevice).requires_grad_(), {}};
  const at::Tensor hidden = at::ones({kTokens, 2}, kDevice).requires_grad_();
  const at::Tensor targets = at::zeros({kTokens}, at::TensorOptions(kDevice).dtype(at::kLong));
  FakeDevice::get().clear();
  torch::autograd::backward({linear_cross_entropy(hidden, head, targets, /*scale=*/1)});
  const auto kernels = FakeDevice::get().kernels();
  EXPECT_EQ(std::ranges::count(kernels, "aten::_log_softmax"), 1) << counts(kernels);
}

class OneRank final : public TensorGroup {
 public:
  OneRank() : TensorGroup(TensorPlace{}, /*cuts_tokens=*/false) {}
  void sum(const at::Tensor& /*values*/) override {}
  std::vector<at::Tensor> exchange(const at::Tensor& values) override { return {values}; }
};

/// Products of 16-bit types are slow on GPUs if a dimension is no multiple of 8.
TEST_F(DeviceLayersTest, TheHeadCutsAnOddVocabularyWithoutAnEffect) {
  const auto type = at::kFloat;
  OneRank one_rank;
  const std::array<VocabularyPart, 2> parts = {VocabularyPart{}, {.group = &one_rank, .first = 0, .all = 77}};
  for (const auto& [biased, part] :
       {std::pair(false, parts[0]), {true, parts[0]}, {false, parts[1]}, {true, parts[1]}}) {
    const auto solve = [&, biased = biased, part = part](at::Device device) {
      const auto leaf = [&](const at::Tensor& value) { return value.detach().clone().to(device).requires_grad_(); };
      const at::Tensor numbers = at::arange(77 * 3, type).view({77, 3}).sin();
      const Linear head{leaf(numbers), biased ? leaf(numbers.select(1, 0).contiguous()) : at::Tensor()};
      const at::Tensor hidden = leaf(at::arange(5 * 3, type).view({5, 3}).cos());
      const at::Tensor targets = at::tensor({0, 76, -100, 3, 75}, at::kLong).to(device);
      const at::Tensor loss = linear_cross_entropy(hidden, head, targets, /*scale=*/0.5, /*logits_of_chunk=*/{}, part);
      torch::autograd::backward({loss});
      std::vector<at::Tensor> results = {loss.detach(), hidden.grad(), head.weight.grad()};
      if (biased) results.push_back(head.bias.grad());
      for (at::Tensor& each : results) each = each.to(at::kCPU);
      return results;
    };
    FakeDevice::get().clear();
    const auto found = solve(kDevice);
    const auto kernels = FakeDevice::get().kernels();
    EXPECT_THAT(kernels, ::testing::Contains("aten::fill_")) << "behind the 77 logits of a row";
    EXPECT_EQ(std::ranges::count(kernels, "aten::mm"), biased ? 1 : 3) << "of 64 and 13 tokens: " << counts(kernels);
    const auto expected = solve(at::kCPU);
    for (std::size_t i = 0; i < expected.size(); ++i)
      EXPECT_TRUE(at::allclose(found[i], expected[i], 1e-5, 1e-6)) << i << (biased ? ", biased" : "");
  }
}

/// Loss and gradients of a head in bfloat16 with float32 gradients of weights, as in training; of a head in float64 on
/// the CPU, with the same numbers.
std::vector<at::Tensor> head_results(std::int64_t vocabulary, bool biased, at::Device device) {
  constexpr std::int64_t kTokens = 16;
  constexpr std::int64_t kHidden = 24;
  const at::ScalarType type = device.is_cpu() ? at::kDouble : at::kBFloat16;
  at::manual_seed(8);
  const auto leaf = [&](at::IntArrayRef sizes, double scale) {
    at::Tensor value = at::randn(sizes).mul(scale).to(at::kBFloat16).to(type).to(device).requires_grad_();
    return value;
  };
  Linear head{leaf({vocabulary, kHidden}, 0.5), biased ? leaf({vocabulary}, 1) : at::Tensor()};
  at::Tensor hidden = leaf({kTokens, kHidden}, 1);
  for (at::Tensor* each : {&head.weight, &head.bias}) {
    if (!each->defined() || device.is_cpu()) continue;
    each->mutable_grad() = at::zeros(each->sizes(), each->options().dtype(at::kFloat));
  }
  at::Tensor targets = at::randint(vocabulary, {kTokens}, at::kLong);
  targets[0] = vocabulary - 1;
  targets[1] = kIgnored;
  const auto queue = c10::make_intrusive<WeightGradients>();
  const WeightGradients::Scope scope(queue);
  const at::Tensor loss = linear_cross_entropy(hidden, head, targets.to(device), /*scale=*/0.25);
  torch::autograd::backward({loss});
  std::vector<at::Tensor> results = {loss.detach().cpu(), hidden.grad().cpu(), head.weight.grad().cpu()};
  if (biased) results.push_back(head.bias.grad().cpu());
  return results;
}

/// On a GPU, products of 16-bit numbers are slow if a dimension is no multiple of 8, so only the tail's is not.
TEST_F(DeviceLayersTest, TheBfloat16HeadWithAnOddVocabularyIsRight) {
  constexpr std::int64_t kOdd = 64 * 3 + 13;
  for (const bool biased : {false, true}) {
    SCOPED_TRACE(biased ? "with a bias" : "without a bias");
    std::map<std::int64_t, int> odd;  // dimensions that are no multiples of 8
    int products = 0;
    FakeDevice::get().clear();
    FakeDevice::get().wait_at_first_uses([&](c10::StreamId, const std::string& use) {
      if (!use.starts_with("aten::mm") && !use.starts_with("aten::addmm")) return;
      ++products;
      std::istringstream numbers(use.substr(use.find(' ')));
      for (std::string word; numbers >> word;) {
        if (std::isdigit(static_cast<unsigned char>(word.front())) == 0) continue;
        std::istringstream sizes(word);
        for (std::string size; std::getline(sizes, size, 'x');) {
          if (std::stoll(size) % 8 != 0) ++odd[std::stoll(size)];
        }
      }
    });
    std::vector<at::Tensor> found;
    {
      const PooledStreamGuard stream(kDevice);
      found = head_results(kOdd, biased, kDevice);
    }
    FakeDevice::get().wait_at_first_uses({});
    EXPECT_EQ(products, 2 * 3) << "logits, gradients of hidden states and of weights; each in two parts";
    EXPECT_THAT(odd, ::testing::ElementsAre(::testing::Key(13))) << "the tail";
    // Probabilities and gradients are rounded to bfloat16, to 1/256; with a bias, logits too.
    expect_close(found, head_results(kOdd, biased, at::kCPU), biased ? 0.02 : 0.01);
  }
}

}  // namespace
}  // namespace chimera
