#include "data/samples.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <set>
#include <string>

#include "core/error.h"
#include "text.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

const std::string kText = sentences(200);

std::string text_of(const std::vector<std::int64_t>& tokens) { return {tokens.begin(), tokens.end()}; }

/// The NextToken samples of one epoch as text, in order.
std::vector<std::string> epoch(const Samples& samples, std::int64_t number) {
  std::vector<std::string> texts;
  for (std::int64_t i = 0; i < samples.count(); ++i)
    texts.push_back(text_of(samples.sample_at(number * samples.count() + i).tokens));
  return texts;
}

/// Documents of letters, one per file.
TokenView letters(const std::vector<std::string>& documents) {
  std::vector<TokenFile> files;
  std::int64_t size = 0;
  for (const std::string& document : documents) {
    const std::vector<std::int32_t> tokens(document.begin(), document.end());
    files.push_back(tokens_in_memory(tokens, "letters", kByteVocabulary));
    size += files.back().size();
  }
  return {std::make_shared<const TokenStream>(std::move(files)), 0, size, "letters"};
}

SampleKind any_kind() { return *rc::gen::element(SampleKind::NextToken, SampleKind::MaskedPairs); }

void expect_refused(const std::string& text, const SampleOptions& options, const std::string& message) {
  EXPECT_THAT([&] { Samples(view_of(text), options); }, ::testing::ThrowsMessage<ConfigError>(HasSubstr(message)));
}

TEST(SamplesTest, NextTokenTargetsAreShiftedByOne) {
  const Samples samples(view_of("abcd"), {.sequence = 3});
  const Sample sample = samples.sample_at(0);
  EXPECT_EQ(text_of(sample.tokens), "abc");
  EXPECT_EQ(text_of(sample.targets), "bcd");
  EXPECT_EQ(sample.token_types, std::vector<std::int64_t>(3, 0));
  EXPECT_EQ(sample.attention, std::vector<std::uint8_t>(3, 1));
}

TEST(SamplesTest, AnEpochShowsEveryWindowOnce) {
  const Samples samples(view_of("abcdefghijk"), {.sequence = 2});
  ASSERT_EQ(samples.count(), 3);
  EXPECT_THAT(epoch(samples, 0), ::testing::UnorderedElementsAre("ab", "de", "gh"));
  EXPECT_THAT(epoch(samples, 1), ::testing::UnorderedElementsAre("ab", "de", "gh"));
}

TEST(SamplesTest, EpochsAndSeedsHaveDifferentOrders) {
  const Samples samples(view_of(kText), {.sequence = 10, .seed = 1});
  EXPECT_NE(epoch(samples, 0), epoch(samples, 1));
  EXPECT_NE(epoch(samples, 0), epoch(Samples(view_of(kText), {.sequence = 10, .seed = 2}), 0));
  EXPECT_EQ(epoch(samples, 0), epoch(Samples(view_of(kText), {.sequence = 10, .seed = 1}), 0));
}

/// The order of samples is the same for any number of samples per step.
RC_GTEST_PROP(SamplesTest, EveryEpochIsAPermutationOfTheWindows, ()) {
  const auto sequence = *rc::gen::inRange<std::int64_t>(10, 60);
  const Samples samples(view_of(kText), {SampleKind::NextToken, sequence, *rc::gen::arbitrary<std::uint64_t>()});
  const auto texts = epoch(samples, *rc::gen::inRange(0, 5));
  RC_ASSERT(std::set<std::string>(texts.begin(), texts.end()).size() == texts.size());
}

RC_GTEST_PROP(SamplesTest, ShapesTokensAndTargetsAreAsPromised, ()) {
  const auto sequence = *rc::gen::inRange<std::int64_t>(8, 200);
  const SampleOptions options{any_kind(), sequence, *rc::gen::arbitrary<std::uint64_t>()};
  const Samples samples(view_of(kText), options);
  const Sample sample = samples.sample_at(*rc::gen::inRange(0, 300));
  const auto length = static_cast<std::size_t>(options.sequence);
  RC_ASSERT(sample.tokens.size() == length && sample.targets.size() == length);
  RC_ASSERT(sample.token_types.size() == length && sample.attention == std::vector<std::uint8_t>(length, 1));
  std::int64_t targets = 0;
  for (std::size_t i = 0; i < length; ++i) {
    RC_ASSERT(sample.tokens[i] >= 0 && sample.tokens[i] < vocabulary_needed(options.kind));
    if (sample.targets[i] == kIgnoredTarget) continue;
    ++targets;
    RC_ASSERT(sample.targets[i] >= 0 && sample.targets[i] < 256);
  }
  RC_ASSERT(targets == samples.targets_per_sample());
}

TEST(SamplesTest, SplitNumbersTheDocumentsOfASample) {
  const Samples packed(letters({"abc", "de"}), {.sequence = 4});
  const Samples split(letters({"abc", "de"}), {.sequence = 4, .documents = Documents::Split});
  EXPECT_THAT(packed.sample_at(0).documents, ::testing::ElementsAre());
  EXPECT_THAT(split.sample_at(0).documents, ::testing::ElementsAre(0, 0, 0, 1));
  EXPECT_EQ(split.sample_at(0).tokens, packed.sample_at(0).tokens);
  EXPECT_EQ(split.sample_at(0).targets, packed.sample_at(0).targets);
}

/// Sample p of a mixture is the sample that its source alone would give next.
TEST(SamplesTest, AMixtureReadsItsFirstSourceAsIfItWereAlone) {
  const std::string other(5000, 'x');
  const MixedTokens mixed{{view_of(kText), view_of(other)}, Mixture({{3, "a"}, {1, "b"}}, 1)};
  const Samples samples(mixed, {.sequence = 16});
  const Samples alone(view_of(kText), {.sequence = 16});
  int first = 0;
  for (std::int64_t i = 0; i < 1000; ++i) {
    const auto [source, position] = mixed.mixture.place(i);
    if (source == 0) {
      ++first;
      ASSERT_EQ(samples.sample_at(i), alone.sample_at(position));
    } else {
      ASSERT_EQ(text_of(samples.sample_at(i).tokens), std::string(16, 'x'));
    }
  }
  EXPECT_GT(first, 600);
}

TEST(SamplesTest, KnowsTheVocabularyOfAModel) {
  EXPECT_EQ(vocabulary_needed(SampleKind::NextToken), 256);
  EXPECT_EQ(vocabulary_needed(SampleKind::MaskedPairs), 260);
}

TEST(SamplesTest, PredictsTheNumberOfTargets) {
  const auto targets = [](SampleKind kind, std::int64_t sequence) {
    return Samples(view_of(kText), {kind, sequence, 1}).targets_per_sample();
  };
  EXPECT_EQ(targets(SampleKind::NextToken, 128), 128);
  EXPECT_EQ(targets(SampleKind::MaskedPairs, 128), 19);  // 0.15 * 125 = 18.75
  EXPECT_EQ(targets(SampleKind::MaskedPairs, 8), 1);     // 0.15 * 5 = 0.75
}

TEST(SamplesTest, RefusesASplitShorterThanOneSample) {
  expect_refused("abc", {.sequence = 3}, "text has 3 tokens, one sample needs 4");
  expect_refused("", {.sequence = 1}, "text has 0 tokens, one sample needs 2");
  expect_refused("abcd", {.kind = SampleKind::MaskedPairs, .sequence = 8}, "text has 4 tokens, one sample needs 5");
}

TEST(SamplesTest, RefusesASequenceOutOfRange) {
  expect_refused(kText, {.sequence = 0}, "a sequence of 0 tokens; expected 1 ..");
  expect_refused(kText, {.sequence = INT64_MAX}, "expected 1 ..");
  expect_refused(kText, {.kind = SampleKind::MaskedPairs, .sequence = 7}, "a sequence of 7 tokens; expected 8 ..");
}

RC_GTEST_PROP(SamplesInOrderTest, EveryTokenButTheFirstIsATargetOnceAndInOrder, ()) {
  const auto sequence = *rc::gen::inRange<std::int64_t>(1, 60);
  const Samples samples(view_of(kText), {.sequence = sequence, .seed = *rc::gen::arbitrary<std::uint64_t>()});
  std::string read(1, kText[0]);
  for (std::int64_t i = 0; i < samples.ordered_count(); ++i) {
    const Sample sample = samples.ordered_sample(i);
    RC_ASSERT(text_of(sample.tokens) == read.substr(read.size() - 1) + text_of(sample.targets).substr(0, sequence - 1));
    read += text_of(sample.targets);
  }
  RC_ASSERT(kText.starts_with(read));
  RC_ASSERT(static_cast<std::int64_t>(kText.size() - read.size()) < sequence);
  RC_ASSERT(samples.targets_per_sample() == sequence);
}

TEST(SamplesInOrderTest, NeedsAWholeWindow) {
  EXPECT_EQ(Samples(view_of("abcde"), {.sequence = 4}).ordered_count(), 1);
  EXPECT_EQ(Samples(view_of("abcdefgh"), {.sequence = 4}).ordered_count(), 1);
  EXPECT_EQ(Samples(view_of("abcdefghi"), {.sequence = 4}).ordered_count(), 2);
  EXPECT_THAT([] { Samples(view_of("abcd"), {.sequence = 4}); },
              ::testing::ThrowsMessage<ConfigError>(HasSubstr("text has 4 tokens, one sample needs 5")));
}

/// Samples shuffles the same windows into another order.
TEST(SamplesInOrderTest, PairsAndMasksEqualTrainingsInTokenOrder) {
  const SampleOptions options{.kind = SampleKind::MaskedPairs, .sequence = 32, .seed = 3};
  const Samples samples(view_of(kText), options);
  EXPECT_EQ(samples.ordered_count(), samples.count());
  for (std::int64_t i = 0; i < samples.ordered_count(); ++i)
    EXPECT_EQ(samples.ordered_sample(i), masked_pair(view_of(kText), options, i, i)) << i;
}

}  // namespace
}  // namespace chimera
