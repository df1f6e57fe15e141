#include "data/samples.h"

#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "text.h"

namespace chimera {
namespace {

const std::string kMaskedText = sentences(500);
constexpr std::int64_t kClass = 257;
constexpr std::int64_t kSeparator = 258;
constexpr std::int64_t kMask = 259;

/// The two texts of a sample before masking.
struct Texts {
  std::string first;
  std::string second;
};

Texts texts_of(const Sample& sample) {
  Texts texts;
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
    const std::int64_t original = sample.targets[i] == kIgnoredTarget ? sample.tokens[i] : sample.targets[i];
    if (original < 256) (sample.token_types[i] == 0 ? texts.first : texts.second) += static_cast<char>(original);
  }
  return texts;
}

Samples pairs(std::int64_t sequence, std::uint64_t seed = 1) {
  return {view_of(kMaskedText), {SampleKind::MaskedPairs, sequence, seed}};
}

std::int64_t cut(const std::string& text) {
  return find_cut(view_of(text).read(0, static_cast<std::int64_t>(text.size())));
}

TEST(FindCutTest, PrefersTheSentenceEndNearestTheMiddle) {
  EXPECT_EQ(cut("One. Two a b c. d"), 5);
  EXPECT_EQ(cut("a b\nOh! two\nd"), 8);
}

TEST(FindCutTest, ThenTheLineEndThenTheBlankThenTheMiddle) {
  EXPECT_EQ(cut("ab c\ndef"), 5);
  EXPECT_EQ(cut("ab cdefg"), 3);
  EXPECT_EQ(cut("abcdefgh"), 4);
}

TEST(FindCutTest, LeavesNeitherTextBelowAQuarter) { EXPECT_EQ(cut("a. bcdefghijklmnop. q"), 10); }

RC_GTEST_PROP(MaskedPairsTest, ASampleIsClassFirstSeparatorSecondSeparator, ()) {
  const auto sequence = *rc::gen::inRange<std::int64_t>(8, 200);
  const Sample sample = pairs(sequence, *rc::gen::arbitrary<std::uint64_t>()).sample_at(*rc::gen::inRange(0, 500));
  const Texts texts = texts_of(sample);
  const std::size_t middle = texts.first.size() + 1;
  RC_ASSERT(!texts.first.empty() && !texts.second.empty());
  RC_ASSERT(texts.first.size() + texts.second.size() + 3 == sample.tokens.size());
  RC_ASSERT(sample.tokens.front() == kClass);
  RC_ASSERT(sample.tokens[middle] == kSeparator);
  RC_ASSERT(sample.tokens.back() == kSeparator);
  RC_ASSERT(std::ranges::count(sample.tokens, kSeparator) == 2);
  for (std::size_t i = 0; i < sample.tokens.size(); ++i) RC_ASSERT(sample.token_types[i] == (i <= middle ? 0 : 1));
}

TEST(MaskedPairsTest, SecondTextFollowsTheFirstIfTheLabelSaysSo) {
  const Samples samples = pairs(64);
  for (std::int64_t i = 0; i < samples.count(); ++i) {
    const Sample sample = samples.sample_at(i);
    const Texts texts = texts_of(sample);
    const bool follows = kMaskedText.find(texts.first + texts.second) != std::string::npos;
    EXPECT_EQ(follows, sample.next_sentence == 0) << texts.first << '|' << texts.second;
    EXPECT_NE(kMaskedText.find(texts.second), std::string::npos) << texts.second;
  }
}

/// Otherwise a model could detect a random second text by a beginning within a word.
TEST(MaskedPairsTest, BothKindsOfSecondTextBeginWithASentence) {
  const Samples samples = pairs(64);
  std::int64_t sentence_starts = 0;
  for (std::int64_t i = 0; i < samples.count(); ++i) {
    const Texts texts = texts_of(samples.sample_at(i));
    sentence_starts += kMaskedText.find(". " + texts.second) != std::string::npos ? 1 : 0;
  }
  EXPECT_GE(sentence_starts, samples.count() - 2) << "only a pair with the last window may begin elsewhere";
}

/// 2000 fair draws: standard deviation 22.
TEST(MaskedPairsTest, HalfOfThePairsBelongTogether) {
  const Samples samples = pairs(16);
  std::int64_t others = 0;
  for (std::int64_t i = 0; i < 2000; ++i) others += samples.sample_at(i).next_sentence;
  EXPECT_NEAR(static_cast<double>(others), 1000.0, 100.0);
}

TEST(MaskedPairsTest, AWindowIsNeverItsOwnOtherWindow) {
  const Samples samples(view_of("One. Two.Red. Men."), {SampleKind::MaskedPairs, 12, 1});
  ASSERT_EQ(samples.count(), 2);
  for (std::int64_t step = 0; step < 40; ++step) {
    const Sample sample = samples.sample_at(step);
    const Texts texts = texts_of(sample);
    const bool together = (texts.first == "One. ") == (texts.second == "Two.");
    EXPECT_EQ(together, sample.next_sentence == 0) << texts.first << '|' << texts.second;
  }
}

TEST(MaskedPairsTest, ALoneWindowIsPairedWithItself) {
  const Samples samples(view_of("One. Two."), {SampleKind::MaskedPairs, 12, 1});
  ASSERT_EQ(samples.count(), 1);
  for (std::int64_t step = 0; step < 20; ++step) EXPECT_EQ(samples.sample_at(step).next_sentence, 0);
}

/// 7600 targets: the standard deviations of the shares are 0.5 % (of 80 %) and 0.35 % (of 10 %). A random byte equals
/// the original with probability 1/256.
TEST(MaskedPairsTest, EightyPercentAreMaskedTenRandomTenUnchanged) {
  const Samples samples = pairs(128);
  double masked = 0;
  double unchanged = 0;
  double random = 0;
  for (std::int64_t i = 0; i < 400; ++i) {
    const Sample sample = samples.sample_at(i);
    for (std::size_t k = 0; k < sample.tokens.size(); ++k) {
      if (sample.targets[k] == kIgnoredTarget) continue;
      (sample.tokens[k] == kMask ? masked : sample.tokens[k] == sample.targets[k] ? unchanged : random) += 1;
    }
  }
  const double all = masked + unchanged + random;
  EXPECT_EQ(all, 400 * 19);
  EXPECT_NEAR(masked / all, 0.8, 0.02);
  EXPECT_NEAR(unchanged / all, 0.1, 0.015);
  EXPECT_NEAR(random / all, 0.1, 0.015);
}

TEST(MaskedPairsTest, MasksEveryTextPlaceAndNothingElse) {
  const Samples samples = pairs(16);
  std::vector<int> hits(16);
  for (std::int64_t i = 0; i < 2000; ++i) {
    const Sample sample = samples.sample_at(i);
    for (std::size_t k = 0; k < hits.size(); ++k) {
      if (sample.targets[k] == kIgnoredTarget) continue;
      ++hits[k];
      ASSERT_LT(sample.targets[k], 256);
    }
  }
  EXPECT_EQ(hits.front(), 0);
  EXPECT_EQ(hits.back(), 0);
  // 2 of 13 places, 2000 times: 308 each, standard deviation 16; places that may hold the separator get slightly fewer.
  for (const std::size_t k : {1U, 2U, 3U, 13U, 14U}) EXPECT_NEAR(hits[k], 308, 65) << k;
}

TEST(MaskedPairsTest, MasksDifferBetweenEpochs) {
  const Samples samples(view_of("One. Two."), {SampleKind::MaskedPairs, 12, 1});
  int changes = 0;
  for (std::int64_t step = 1; step < 20; ++step)
    changes += samples.sample_at(step).targets != samples.sample_at(step - 1).targets ? 1 : 0;
  EXPECT_GT(changes, 10);
}

/// A vocabulary of 500 ids with [CLS] 1, [SEP] 2 and [MASK] 3; the text contains some of these ids too.
TEST(MaskedPairsTest, TokensOfAVocabularyHaveItsSpecialTokensAndAnyReplacement) {
  std::vector<std::int32_t> ids(5000);
  for (std::size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<std::int32_t>(1 + i % 7);
  std::vector<TokenFile> files;
  files.push_back(tokens_in_memory(ids, "ids", 500));
  const TokenView view(std::make_shared<const TokenStream>(std::move(files)), 0, 5000, "ids");
  const Samples samples(view, {.kind = SampleKind::MaskedPairs,
                               .sequence = 23,
                               .special = {1, 2, 3},
                               .replacements = 500,
                               .is_plain_text = false});
  std::int64_t replaced = 0;
  std::int64_t highest = 0;
  for (std::int64_t step = 0; step < 1000; ++step) {
    const Sample sample = samples.sample_at(step);
    ASSERT_EQ(sample.tokens[0], 1);
    ASSERT_EQ(sample.tokens[11], 2) << "in the middle, as ids do not show where a sentence ends";
    ASSERT_EQ(sample.tokens[22], 2);
    for (std::size_t i = 0; i < sample.tokens.size(); ++i) {
      if (sample.targets[i] == kIgnoredTarget) continue;
      ASSERT_TRUE(i != 0 && i != 11 && i != 22);
      if (sample.tokens[i] == 3 || sample.tokens[i] == sample.targets[i]) continue;
      ++replaced;
      highest = std::max(highest, sample.tokens[i]);
    }
  }
  EXPECT_GT(replaced, 200) << "a tenth of 3000";
  EXPECT_GT(highest, 450);
  EXPECT_LT(highest, 500);
}

}  // namespace
}  // namespace chimera
