// Logits, loss and gradients equal those of Hugging Face's models, in float64. What remains are other orders of
// summation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/grad_mode.h>

#include <algorithm>

#include "model/bert_stage.h"
#include "model/examples.h"
#include "model/gpt2_stage.h"
#include "model/safetensors_file.h"

namespace chimera {
namespace {

ModelConfig config_of(const SafetensorsFile& file) {
  const auto size = [&](const char* field) { return std::stoll(file.metadata.at(field)); };
  const Family family = file.metadata.at("family") == "gpt2" ? Family::Gpt2 : Family::Bert;
  return {.name = "fixture",
          .family = family,
          .layers = size("layers"),
          .hidden = size("hidden"),
          .heads = size("heads"),
          .feed_forward = size("feed_forward"),
          .vocabulary = size("vocabulary"),
          .positions = size("positions"),
          .tied = file.metadata.at("tied") == "true"};
}

/// The tensor of that name, or an undefined one.
at::Tensor find_tensor(const SafetensorsFile& file, const std::string& name) {
  const auto found = file.tensors.find(name);
  return found == file.tensors.end() ? at::Tensor() : found->second;
}

MicroBatch batch_of(const SafetensorsFile& file) {
  MicroBatch batch{.tokens = find_tensor(file, "tokens"),
                   .targets = find_tensor(file, "targets"),
                   .token_types = find_tensor(file, "token_types"),
                   .attention_mask = find_tensor(file, "attention_mask"),
                   .next_sentence = find_tensor(file, "next_sentence")};
  batch.token_loss_scale = 1.0 / batch.targets.ne(kIgnored).sum().item<double>();
  batch.sentence_loss_scale = 1.0 / static_cast<double>(batch.tokens.size(0));
  return batch;
}

void set_weights(const ParameterGroup& group, const SafetensorsFile& file) {
  const torch::autograd::AutoGradMode no_grad(false);
  for (const Parameter& parameter : group.parameters()) {
    const at::Tensor& value = file.tensors.at("weights/" + parameter.name);
    ASSERT_EQ(parameter.value.sizes(), value.sizes()) << parameter.name;
    parameter.value.copy_(value);
  }
}

double norm_of_all_gradients(const SafetensorsFile& file) {
  double squares = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with("gradients/")) squares += tensor.square().sum().item<double>();
  }
  return std::sqrt(squares);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

class HuggingFaceTest : public testing::TestWithParam<const char*> {
 protected:
  SafetensorsFile file_ =
      read_safetensors(std::string(CHIMERA_SOURCE_DIR "/tests/model/fixtures/") + GetParam() + ".safetensors");
  ModelConfig config_ = config_of(file_);
  MicroBatch batch_ = batch_of(file_);
  std::unique_ptr<TiedWeight> tied_ =
      config_.tied ? make_tied_weight(config_, {.embedding = true, .head = true}, at::kDouble, 1) : nullptr;

  [[nodiscard]] std::unique_ptr<Stage> make(const StageLayers& layers) const {
    return make_stage(config_, layers, at::kDouble, 1, tied_ ? tied_->leaves() : TiedLeaves{});
  }
  /// With the file's weights.
  [[nodiscard]] std::unique_ptr<Stage> load(const StageLayers& layers) const {
    auto stage = make(layers);
    set_weights(*stage, file_);
    if (tied_) set_weights(*tied_, file_);
    return stage;
  }
};
INSTANTIATE_TEST_SUITE_P(Models, HuggingFaceTest,
                         testing::Values("gpt2_untied", "gpt2_tied", "bert_untied", "bert_tied"),
                         [](const auto& file) { return std::string(file.param); });

TEST_P(HuggingFaceTest, HasTheSameParameters) {
  const auto stage = make(whole(config_));
  const auto is_weight = [](const auto& entry) { return entry.first.starts_with("weights/"); };
  EXPECT_EQ(std::ssize(stage->parameters()) + (config_.tied ? 1 : 0), std::ranges::count_if(file_.tensors, is_weight));
}

TEST_P(HuggingFaceTest, GivesTheSameLogits) {
  const auto stage = load(whole(config_));
  const auto& transformer = dynamic_cast<const TransformerStage&>(*stage);
  const at::Tensor hidden = transformer.hidden_states({}, batch_);
  EXPECT_LT(largest_difference(transformer.logits(hidden), file_.tensors.at("logits")), 1e-10);
  if (const auto* bert = dynamic_cast<const BertStage*>(stage.get())) {
    EXPECT_LT(largest_difference(bert->sentence_logits(hidden), file_.tensors.at("sentence_logits")), 1e-10);
  }
}

// A gradient that is zero by mathematics, as that of the key bias, is compared with the size of all gradients.
TEST_P(HuggingFaceTest, GivesTheSameLossAndGradients) {
  for (const std::int64_t count : {1, 2}) {
    std::vector<std::unique_ptr<Stage>> stages;
    for (const StageLayers& layers : even_partition(config_.layers, count)) stages.push_back(load(layers));
    std::vector<ParameterGroup*> groups;
    for (const auto& stage : stages) groups.push_back(stage.get());
    if (tied_) groups.push_back(tied_.get());
    for (ParameterGroup* const group : groups) group->zero_gradients();
    EXPECT_NEAR(run_stages(stages, batch_), file_.tensors.at("loss").item<double>(), 1e-12);
    if (tied_) tied_->add_accumulators();
    const double floor = 1e-6 * norm_of_all_gradients(file_);
    for (const ParameterGroup* const group : groups) {
      for (const Parameter& parameter : group->parameters()) {
        const at::Tensor& expected = file_.tensors.at("gradients/" + parameter.name);
        const double difference = (parameter.value.grad() - expected).norm().item<double>();
        EXPECT_LT(difference / std::max(expected.norm().item<double>(), floor), 1e-9) << parameter.name;
      }
    }
  }
}

}  // namespace
}  // namespace chimera
