// A model generates the same on one rank and on several, with and without a key-value cache.
#include "inference/continuation.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <mutex>

#include "engine/run_shape.h"
#include "model/examples.h"
#include "support/message_of.h"
#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::SizeIs;

ModelConfig model_of(Family family, std::int64_t vocabulary = 11) {
  ModelConfig config = small_model(family);
  config.positions = 40;
  config.vocabulary = vocabulary;
  return config;
}

/// Continuations of a model on `ranks` ranks; `holders` gives the rank of each stage. All ranks return the same.
std::vector<Continuation> continuations(const ModelConfig& config, const std::vector<std::int64_t>& holders, int ranks,
                                        const std::vector<Prompt>& prompts, const ContinuationOptions& options,
                                        const Tokenizer* tokenizer = nullptr) {
  const auto partition = even_partition(config.layers, std::ssize(holders));
  std::mutex mutex;
  std::vector<Continuation> said;
  run_rank_threads(ranks, {}, [&](RankId self, Transport& transport) {
    std::map<StageId, std::unique_ptr<Stage>> stages;
    StageRanks places{.holders = {}, .self = self};
    for (std::size_t s = 0; s < holders.size(); ++s) {
      places.holders.emplace_back(holders[s]);
      // Some ranks also hold stages of other replicas.
      stages.emplace(StageId(static_cast<std::int64_t>(s)), rough_stage(config, partition[s]));
    }
    DistributedModel model(borrow<Stage>(stages), places, transport, config.hidden, at::kDouble);
    std::vector<Continuation> own;
    for (const Prompt& prompt : prompts) own.push_back(continue_prompt(model, prompt, options, tokenizer));
    const std::scoped_lock lock(mutex);
    for (std::size_t i = 0; i < said.size(); ++i) EXPECT_EQ(own[i].ids, said[i].ids);
    said = std::move(own);
  });
  return said;
}

Continuation alone(const ModelConfig& config, const Prompt& prompt, const ContinuationOptions& options,
                   const Tokenizer* tokenizer = nullptr) {
  return continuations(config, {0}, 1, {prompt}, options, tokenizer).front();
}

/// Reads the whole sequence again for every token.
TokenIds greedy_without_cache(const ModelConfig& config, TokenIds ids, std::int64_t tokens) {
  const at::NoGradGuard no_graph;
  const auto stage = rough_stage(config, whole(config));
  const auto& transformer = dynamic_cast<const TransformerStage&>(*stage);
  const std::size_t prompt = ids.size();
  for (std::int64_t i = 0; i < tokens; ++i) {
    const at::Tensor sequence = at::tensor(std::vector<std::int64_t>(ids.begin(), ids.end()), at::kLong).unsqueeze(0);
    const at::Tensor logits = transformer.logits(transformer.hidden_states({}, {.tokens = sequence}));
    ids.push_back(static_cast<TokenId>(logits[0][-1].argmax().item<std::int64_t>()));
  }
  return {ids.begin() + static_cast<std::ptrdiff_t>(prompt), ids.end()};
}

class ContinuationTest : public ::testing::TestWithParam<Family> {};
INSTANTIATE_TEST_SUITE_P(Families, ContinuationTest, ::testing::Values(Family::Gpt2, Family::Llama),
                         [](const auto& family) { return to_text(family.param); });

TEST_P(ContinuationTest, EqualsReadingWholeSequences) {
  const ModelConfig config = model_of(GetParam());
  for (const TokenIds& ids : {TokenIds{3}, TokenIds{1, 10, 4, 7}}) {
    const std::int64_t room = most_new_tokens(config, std::ssize(ids), "the prompt");
    EXPECT_EQ(alone(config, {ids, 0}, {.sampling = {}, .tokens = room}).ids, greedy_without_cache(config, ids, room));
  }
}

TEST_P(ContinuationTest, IsTheSameForEveryPlacement) {
  const ModelConfig config = model_of(GetParam());
  const std::vector<Prompt> prompts = {{{1, 2, 3}, 0}, {{9}, 1}, {{1, 2, 3}, 2}};
  for (const double temperature : {0.0, 1.5}) {
    const ContinuationOptions options{.sampling = {.temperature = temperature}, .tokens = 20};
    const auto expected = continuations(config, {0}, 1, prompts, options);
    const std::vector<std::vector<std::int64_t>> places = {{0, 1},       {1, 0},       {0, 1, 0, 1},
                                                           {0, 1, 1, 0}, {2, 3, 1, 0}, {2}};
    for (const auto& holders : places) {
      const auto said = continuations(config, holders, 4, prompts, options);
      for (std::size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(said[i].ids, expected[i].ids);
    }
  }
}

TEST(ContinuationTest, DrawsDependOnSeedAndPromptNumberAlone) {
  const ModelConfig config = model_of(Family::Gpt2);
  const ContinuationOptions options{.sampling = {.temperature = 2, .seed = 5}, .tokens = 30};
  const Prompt first{{1, 2}, 0};
  const Prompt second{{1, 2}, 1};
  const auto both = continuations(config, {0}, 1, {second, first}, options);
  EXPECT_EQ(alone(config, first, options).ids, both[1].ids);
  EXPECT_EQ(alone(config, second, options).ids, both[0].ids);
  EXPECT_NE(both[0].ids, both[1].ids);
  ContinuationOptions other = options;
  other.sampling.seed = 6;
  EXPECT_NE(alone(config, first, other).ids, both[1].ids);
}

TEST(ContinuationTest, EndsWithAnEndToken) {
  const ModelConfig config = model_of(Family::Llama);
  const Prompt prompt{{4, 4}, 0};
  const TokenIds all = alone(config, prompt, {.sampling = {.temperature = 3}, .tokens = 30}).ids;
  ASSERT_THAT(all, SizeIs(30));
  const auto place = std::ranges::find(all, all[7]) - all.begin();
  const std::vector<std::int64_t> ends = {1000, all[7]};
  const TokenIds ended = alone(config, prompt, {.sampling = {.temperature = 3}, .tokens = 30, .end_tokens = ends}).ids;
  EXPECT_EQ(ended, TokenIds(all.begin(), all.begin() + place + 1));
  EXPECT_THAT(alone(config, prompt, {.sampling = {}, .tokens = 0}).ids, SizeIs(0));
}

TEST(ContinuationTest, TextEndsBeforeAStopText) {
  const ModelConfig config = model_of(Family::Gpt2, 256);
  const auto bytes = make_byte_tokenizer();
  const Prompt prompt{encode(*bytes, "abc"), 0};
  ContinuationOptions options{.sampling = {.temperature = 1}, .tokens = 30};
  const Continuation whole = alone(config, prompt, options, bytes.get());
  EXPECT_EQ(whole.text, bytes->decode(whole.ids, false));
  std::size_t place = 5;
  while (whole.ids[place] >= 128 || whole.ids[place + 1] >= 128) ++place;  // two complete characters
  options.stops = {bytes->decode(std::span(whole.ids).subspan(place, 2), false)};
  const Continuation stopped = alone(config, prompt, options, bytes.get());
  EXPECT_EQ(stopped.text, whole.text.substr(0, whole.text.find(options.stops[0])));
  EXPECT_EQ(stopped.ids, TokenIds(whole.ids.begin(), whole.ids.begin() + std::ssize(stopped.ids)));
  EXPECT_LE(stopped.ids.size(), place + 2);
}

TEST(ContinuationTest, ReportsEveryTokenOnceWithItsText) {
  const ModelConfig config = model_of(Family::Gpt2, 256);
  const auto bytes = make_byte_tokenizer();
  run_rank_threads(1, {}, [&](RankId self, Transport& transport) {
    std::map<StageId, std::unique_ptr<Stage>> stages;
    stages.emplace(StageId(0), rough_stage(config, whole(config)));
    DistributedModel model(borrow<Stage>(stages), {{self}, self}, transport, config.hidden, at::kDouble);
    TokenIds told;
    std::string text;
    const Continuation said = continue_prompt(model, {{65}, 0}, {.sampling = {.temperature = 4}, .tokens = 39},
                                              bytes.get(), [&](TokenId id, std::string_view added) {
                                                told.push_back(id);
                                                text += added;
                                              });
    EXPECT_EQ(told, said.ids);
    EXPECT_EQ(text, said.text);
  });
}

std::string refusal(const std::function<void()>& action) {
  return testing::message_of([&] { action(); });
}

TEST(ContinuationTest, RejectsInvalidPrompts) {
  EXPECT_THAT(refusal([] { require_continuable(small_model(Family::Bert)); }), HasSubstr("model small is a BERT"));
  ModelConfig config = model_of(Family::Llama);
  const auto room = [&](std::int64_t tokens) { return most_new_tokens(config, tokens, "prompt 3"); };
  EXPECT_EQ(room(1), 40);
  EXPECT_EQ(room(40), 1) << "the last one needs no position";
  EXPECT_THAT(refusal([&] { (void)room(0); }), HasSubstr("prompt 3 has no tokens"));
  EXPECT_THAT(refusal([&] { (void)room(41); }), HasSubstr("prompt 3 has 41 tokens, model small 40 positions"));
  config.sliding_window = 12;
  EXPECT_EQ(room(10), 3);
  EXPECT_THAT(refusal([&] { (void)room(13); }), HasSubstr("window"));
}

}  // namespace
}  // namespace chimera
