#include "model_config/footprint.h"

#include <gtest/gtest.h>

#include "model_config/config.h"

namespace chimera {
namespace {

// 6 FLOPs for each weight of a matrix and each token, plus 12 L H for attention for each token and layer; a causal
// model needs half of the attention.
TEST(ModelFlopsTest, AreSixPerWeightAndTokenPlusAttention) {
  ModelConfig config = find_model("gpt2");
  const Workload workload{.micro_batch_size = 2, .sequence = 256};
  const double h = 768;
  const double matrices = 12 * 12 * h * h + 50'257 * h;
  const double tokens = 2 * 256;
  const double without = 6 * tokens * matrices;
  const double attention = 12 * 12 * 256 * h * tokens;
  const double flops = model_flops(config, workload);
  EXPECT_GE(flops, without + attention / 2 - 1);
  EXPECT_LE(flops, without + attention + 1);
  config.vocabulary = 2 * 50'257;
  EXPECT_DOUBLE_EQ(model_flops(config, workload) - flops, 6 * tokens * 50'257 * h) << "chunks change nothing";
}

TEST(ModelFlopsTest, GrowWithTheMicroBatch) {
  const ModelConfig config = find_model("bert-tiny");
  EXPECT_DOUBLE_EQ(model_flops(config, {.micro_batch_size = 6}), 6 * model_flops(config, {.micro_batch_size = 1}));
}

}  // namespace
}  // namespace chimera
