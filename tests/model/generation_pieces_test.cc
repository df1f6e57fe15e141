// Text generation: tokens that are read in pieces, with the keys and values of earlier pieces, have the logits of the
// whole text.
#include "model/key_value_cache.h"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <vector>

#include "model/examples.h"
#include "model/transformer_stage.h"

namespace chimera {
namespace {

constexpr double kCacheTolerance = 1e-12;  // of float64, for other orders of summation

struct Pieces {
  Family family;
  std::vector<std::int64_t> lengths;  // their sum is 6
};

class GenerationPiecesTest : public ::testing::TestWithParam<Pieces> {};
INSTANTIATE_TEST_SUITE_P(Pieces, GenerationPiecesTest,
                         ::testing::Values(Pieces{Family::Gpt2, {6}}, Pieces{Family::Gpt2, {1, 1, 1, 1, 1, 1}},
                                           Pieces{Family::Gpt2, {3, 1, 2}}, Pieces{Family::Llama, {6}},
                                           Pieces{Family::Llama, {1, 1, 1, 1, 1, 1}},
                                           Pieces{Family::Llama, {2, 3, 1}}));

using AllCarried = std::vector<std::shared_ptr<KeyValueCache>>;

/// Logits [b, L, V] of stages run in order, each with keys and values of its own.
at::Tensor read(const std::vector<std::unique_ptr<Stage>>& stages, const at::Tensor& tokens,
                const AllCarried& key_value_cache, std::int64_t first) {
  at::Tensor hidden;
  for (std::size_t s = 0; s < stages.size(); ++s) {
    const MicroBatch batch{.tokens = tokens,
                           .key_value_cache = key_value_cache.empty() ? nullptr : key_value_cache[s],
                           .first_token = first};
    hidden = dynamic_cast<const TransformerStage&>(*stages[s]).hidden_states(hidden, batch);
  }
  return dynamic_cast<const TransformerStage&>(*stages.back()).logits(hidden);
}

TEST_P(GenerationPiecesTest, GivesTheLogitsOfTheWholeSequence) {
  const at::NoGradGuard no_graph;
  const ModelConfig config = small_model(GetParam().family);
  const at::Tensor tokens = small_batch(GetParam().family).tokens;  // 2 sequences
  for (const std::int64_t count : {1, 2, 5}) {
    std::vector<std::unique_ptr<Stage>> stages;
    AllCarried key_value_cache;
    for (const StageLayers& layers : even_partition(config.layers, count)) {
      stages.push_back(rough_stage(config, layers));
      key_value_cache.push_back(std::make_shared<KeyValueCache>(config.positions));
    }
    std::vector<at::Tensor> parts;
    std::int64_t first = 0;
    for (const std::int64_t length : GetParam().lengths) {
      parts.push_back(read(stages, tokens.narrow(1, first, length), key_value_cache, first));
      first += length;
    }
    const at::Tensor expected = read(stages, tokens, {}, 0);
    const at::Tensor logits = at::cat(parts, 1);
    EXPECT_LT((logits - expected).abs().max().item<double>(), kCacheTolerance * expected.abs().max().item<double>());
    EXPECT_TRUE(at::equal(logits.argmax(2), expected.argmax(2)));
  }
}

TEST_P(GenerationPiecesTest, KeepsExactlyItsTokens) {
  const at::NoGradGuard no_graph;
  const auto key_value_cache = std::make_shared<KeyValueCache>(6);
  at::manual_seed(1);
  const at::Tensor keys = at::randn({2, 6, 4});
  const at::Tensor values = at::randn({2, 6, 4});
  std::int64_t first = 0;
  for (const std::int64_t length : GetParam().lengths) {
    for (const std::size_t block : {0U, 2U}) {
      const auto part = [&](const at::Tensor& x) { return x.narrow(1, first, length) + static_cast<double>(block); };
      const QueryKeyValue all =
          append_to_cache(key_value_cache, block, first, {part(values), part(keys), part(values)});
      EXPECT_TRUE(at::equal(all.query, part(values)));
      EXPECT_TRUE(at::equal(all.key, keys.narrow(1, 0, first + length) + static_cast<double>(block)));
      EXPECT_TRUE(at::equal(all.value, values.narrow(1, 0, first + length) + static_cast<double>(block)));
    }
    first += length;
  }
}

}  // namespace
}  // namespace chimera
