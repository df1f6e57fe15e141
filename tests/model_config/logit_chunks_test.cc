#include "model_config/footprint.h"

#include <gtest/gtest.h>

#include "model_config/config.h"

namespace chimera {
namespace {

TEST(LogitChunksTest, AMicroBatchThatFitsIsOneChunk) {
  const TokenChunks chunks = chunks_of(100, 10, 1000);
  EXPECT_EQ(chunks.count(), 1);
  EXPECT_EQ(chunks.last_size(), 100);
}

TEST(LogitChunksTest, ChunksAreAboutEqualAndHoldEveryTokenOnce) {
  for (std::int64_t tokens = 1; tokens <= 50; ++tokens) {
    for (std::int64_t most_tokens = 1; most_tokens <= 12; ++most_tokens) {
      const TokenChunks chunks = chunks_of(tokens, 7, 7 * most_tokens + 6);
      std::int64_t next = 0;
      for (std::int64_t i = 0; i < chunks.count(); ++i) {
        EXPECT_EQ(chunks.first_token(i), next);
        EXPECT_GE(chunks.size_of(i), 1);
        EXPECT_LE(chunks.size_of(i), most_tokens);
        next += chunks.size_of(i);
      }
      EXPECT_EQ(next, tokens);
      EXPECT_LE(chunks.count(), (tokens + most_tokens - 1) / most_tokens) << "no more than needed";
    }
  }
}

TEST(LogitChunksTest, AnOversizedVocabularyTakesOneTokenAtATime) { EXPECT_EQ(chunks_of(3, 1000, 10).count(), 3); }

// A GPU's chunk holds all 1,024 tokens; the CPU's W recomputes three of four chunks.
TEST(LogitChunksTest, AGpusWRecomputesFewerLogits) {
  const ModelConfig config = find_model("gpt2");
  Workload workload = {.sequence = 1024};
  const double cpu = layer_footprint(config, LayerKind::Head, workload).weight_gradient_flops;
  workload.logits_of_chunk = kLogitsOfGpuChunk;
  EXPECT_DOUBLE_EQ(cpu / layer_footprint(config, LayerKind::Head, workload).weight_gradient_flops, 1.75);
}

TEST(LogitChunksTest, WithoutTokensThereIsNoChunk) {
  EXPECT_EQ(chunks_of(0, 1000).count(), 0);
  EXPECT_EQ(chunks_of(0, 1000).last_size(), 0);
}

}  // namespace
}  // namespace chimera
