// Logits, loss and gradients equal those of Hugging Face's models in float64, except for orders of summation.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "model/examples.h"
#include "model/reference_case.h"
#include "model/transformer_stage.h"
#include "support/paths.h"

namespace chimera {
namespace {

double norm_of_all_gradients(const LoadedTensors& file) {
  double squares = 0;
  for (const auto& [name, tensor] : file.tensors) {
    if (name.starts_with("gradients/")) squares += tensor.square().sum().item<double>();
  }
  return std::sqrt(squares);
}

double largest_difference(const at::Tensor& a, const at::Tensor& b) { return (a - b).abs().max().item<double>(); }

class HuggingFaceTest : public ::testing::TestWithParam<const char*> {
 protected:
  ReferenceCase case_ = read_case(testing::source_path("/tests/model/fixtures/") + GetParam() + ".safetensors");
  const std::map<std::string, at::Tensor>& expected_ = case_.file.tensors;
};
INSTANTIATE_TEST_SUITE_P(Models, HuggingFaceTest,
                         ::testing::Values("gpt2_untied", "gpt2_tied", "bert_untied", "bert_tied", "llama", "llama3",
                                           "mistral", "qwen2", "qwen3"),
                         [](const auto& file) { return std::string(file.param); });

TEST_P(HuggingFaceTest, HasTheSameParameters) {
  const auto stage = case_.load(whole(case_.config));
  const auto is_weight = [](const auto& entry) { return entry.first.starts_with("weights/"); };
  EXPECT_EQ(std::ssize(stage->parameters()) + (case_.tied ? 1 : 0), std::ranges::count_if(expected_, is_weight));
}

TEST_P(HuggingFaceTest, GivesTheSameLogits) {
  const auto stage = case_.load(whole(case_.config));
  const auto& transformer = dynamic_cast<const TransformerStage&>(*stage);
  const at::Tensor hidden = transformer.hidden_states({}, case_.batch);
  EXPECT_LT(largest_difference(transformer.logits(hidden), expected_.at("logits")), 1e-10);
  if (case_.config.family == Family::Bert)
    EXPECT_LT(largest_difference(transformer.sentence_logits(hidden), expected_.at("sentence_logits")), 1e-10);
}

// A gradient that is mathematically zero, such as the key bias's, is compared relative to the norm of all gradients.
TEST_P(HuggingFaceTest, GivesTheSameLossAndGradients) {
  for (const std::int64_t count : {1, 2}) {
    std::vector<std::unique_ptr<Stage>> stages;
    for (const StageLayers& layers : even_partition(case_.config.layers, count)) stages.push_back(case_.load(layers));
    std::vector<ParameterGroup*> groups;
    for (const auto& stage : stages) groups.push_back(stage.get());
    if (case_.tied) groups.push_back(case_.tied.get());
    for (ParameterGroup* const group : groups) group->zero_gradients();
    EXPECT_NEAR(run_stages(stages, case_.batch), expected_.at("loss").item<double>(), 1e-12);
    if (case_.tied) case_.tied->add_accumulators();
    const double floor = 1e-6 * norm_of_all_gradients(case_.file);
    for (const ParameterGroup* const group : groups) {
      for (const Parameter& parameter : group->parameters()) {
        const at::Tensor& expected = expected_.at("gradients/" + parameter.name);
        const double difference = (parameter.value.grad() - expected).norm().item<double>();
        EXPECT_LT(difference / std::max(expected.norm().item<double>(), floor), 1e-10) << parameter.name;
      }
    }
  }
}

}  // namespace
}  // namespace chimera
