#include "model/examples.h"

#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/grad_mode.h>

#include "core/random.h"
#include "model/layers.h"

namespace chimera {
namespace {

at::Tensor integers(const char* name, std::int64_t bound) {
  const CounterRandom random(1, name);
  const at::Tensor result = at::empty({2, 6}, at::kLong);
  for (std::int64_t i = 0; i < result.numel(); ++i)
    result.view(-1)[i] = static_cast<std::int64_t>(random.below(static_cast<std::uint64_t>(i), bound));
  return result;
}

}  // namespace

ModelConfig small_model(Family family) {
  ModelConfig config = {.name = "small",
                        .family = family,
                        .layers = 5,
                        .hidden = 8,
                        .heads = 2,
                        .feed_forward = 12,
                        .vocabulary = 11,
                        .positions = 7,
                        .tied = false};
  if (family != Family::Llama) return config;
  config.heads = 4;
  config.key_value_heads = 2;
  config.head_size = 6;
  config.rope_theta = 50;
  config.rope_scaling = {RopeScalingType::Llama3, 8, 0.1, 0.5, 4};
  config.attention_bias = AttentionBias::All;
  config.feed_forward_bias = config.query_key_norm = true;
  return config;
}

MicroBatch small_batch(Family family) {
  MicroBatch batch{.tokens = integers("tokens", 11), .targets = integers("targets", 11)};
  batch.targets[0][5] = kIgnored;
  batch.targets[1][2] = kIgnored;
  batch.token_loss_scale = 1.0 / 10;
  if (family == Family::Bert) {
    batch.token_types = integers("token types", 2);
    batch.attention_mask = at::ones({2, 6}, at::kBool);
    batch.attention_mask[1][5] = false;
    batch.next_sentence = at::arange(2, at::kLong);
    batch.sentence_loss_scale = 1.0 / 2;
  }
  return batch;
}

std::unique_ptr<Stage> rough_stage(const ModelConfig& config, const StageLayers& layers) {
  auto stage = make_stage(config, layers, at::kDouble, initial_values_of(1));
  const torch::autograd::AutoGradMode no_grad(false);
  for (const Parameter& parameter : stage->parameters()) {
    const CounterRandom random(2, parameter.name);
    const at::Tensor flat = parameter.value.view(-1);
    for (std::int64_t i = 0; i < flat.numel(); ++i) flat[i] += 0.4 * random.normal(static_cast<std::uint64_t>(i));
  }
  return stage;
}

StageLayers whole(const ModelConfig& config) { return {0, config.layers, true, true}; }

double run_stages(const std::vector<std::unique_ptr<Stage>>& stages, const MicroBatch& batch) {
  std::vector<at::Tensor> inputs(1);  // of each stage; undefined for the first
  std::vector<at::Tensor> outputs;
  for (const auto& stage : stages) {
    outputs.push_back(stage->forward(inputs.back(), batch));
    inputs.push_back(outputs.back().detach().requires_grad_());
  }
  at::Tensor gradient;  // the gradient of the loss is 1
  for (std::size_t s = stages.size(); s-- > 0;) {
    torch::autograd::backward({outputs[s]}, {gradient});
    if (s > 0) gradient = inputs[s].grad();
  }
  return outputs.back().item<double>();
}

}  // namespace chimera
