#include "data/mixture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rapidcheck/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <set>

#include "core/error.h"
#include "core/resident_memory.h"
#include "data/permutation.h"
#include "data/samples.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::Scratch;
using ::testing::ThrowsMessage;
using Entry = MixtureEntry;

TEST(ParseMixtureTest, ReadsWeightsAndPaths) {
  EXPECT_THAT(parse_mixture("0.7:a.bin 0.3:b.txt"), ElementsAre(Entry{0.7, "a.bin"}, Entry{0.3, "b.txt"}));
  EXPECT_THAT(parse_mixture("2:a  1e-3:/b/c:d"), ElementsAre(Entry{2, "a"}, Entry{1e-3, "/b/c:d"}));
  EXPECT_THAT(parse_mixture("1:my book.txt 1:b"), ElementsAre(Entry{1, "my book.txt"}, Entry{1, "b"}));
}

TEST(ParseMixtureTest, SinglePathIsOneSource) {
  EXPECT_THAT(parse_mixture("my book.txt"), ElementsAre(Entry{1, "my book.txt"}));
  EXPECT_THAT(parse_mixture("c:a"), ElementsAre(Entry{1, "c:a"}));
  EXPECT_THAT(parse_mixture("0.5"), ElementsAre(Entry{1, "0.5"}));
}

TEST(ParseMixtureTest, ExistingFileTakesPrecedence) {
  const Scratch scratch;
  const std::string path = scratch.write("1:2.txt", "text");
  EXPECT_THAT(parse_mixture(path), ElementsAre(Entry{1, path}));
}

TEST(ParseMixtureTest, RejectsInvalidWeights) {
  for (const char* number : {"0", "-1", "1e999", "1-2", "..", "e"}) {
    EXPECT_THAT([&] { static_cast<void>(parse_mixture(std::string(number) + ":a 1:b")); },
                ThrowsMessage<ConfigError>(
                    HasSubstr(std::string(number) + " is not a weight of a mixture; expected a number above 0")));
  }
  EXPECT_THAT([&] { static_cast<void>(parse_mixture("0.5:a 0.5:")); },
              ThrowsMessage<ConfigError>(HasSubstr("a file is missing after 0.5:")));
}

TEST(MixtureTest, SharesAreRoundedToWholeSamplesOfABlock) {
  EXPECT_THAT(Mixture({{0.7, "a"}, {0.3, "b"}}, 1).shares(), ElementsAre(7000, 3000));
  EXPECT_THAT(Mixture({{1, "a"}, {1, "b"}, {1, "c"}}, 1).shares(), ElementsAre(3334, 3333, 3333));
  EXPECT_THAT(Mixture({{1, "a"}, {19'999, "b"}}, 1).shares(), ElementsAre(1, 9999));
  EXPECT_THAT(
      [] {
        Mixture({{1, "a"}, {1e6, "b"}}, 1);
      },
      ThrowsMessage<ConfigError>(HasSubstr("a weighs 1 of 1e+06; the smallest share is one sample in 10000")));
}

TEST(MixtureTest, OneSourceKeepsItsOrder) {
  const Mixture mixture({{0.3, "a"}}, 1);
  for (const std::int64_t position : {0L, 1L, 123'456L, 1L << 60}) {
    EXPECT_EQ(mixture.place(position).source, 0U);
    EXPECT_EQ(mixture.place(position).position, position);
  }
}

/// For any weights: after whole blocks, the places of each source are 0, 1, 2, ... without gaps or repetitions, and
/// match its share.
RC_GTEST_PROP(MixtureTest, EverySourceIsReadWithoutGapsInItsShare, ()) {
  const auto weights =
      *rc::gen::resize(5, rc::gen::nonEmpty(rc::gen::container<std::vector<int>>(rc::gen::inRange(1, 100))));
  std::vector<Entry> entries;
  for (const int weight : weights) entries.push_back({static_cast<double>(weight), "a"});
  const Mixture mixture(entries, *rc::gen::arbitrary<std::uint64_t>());
  const std::int64_t blocks = entries.size() == 1 ? 1 : 2;
  std::vector<std::set<std::int64_t>> seen(entries.size());
  for (std::int64_t i = 0; i < blocks * kMixtureBlock; ++i) {
    const auto [source, position] = mixture.place(i);
    RC_ASSERT(seen.at(source).insert(position).second);
  }
  for (std::size_t i = 0; i < entries.size(); ++i) {
    const std::int64_t expected = blocks * mixture.shares()[i];
    RC_ASSERT(static_cast<std::int64_t>(seen[i].size()) == expected && *seen[i].rbegin() == expected - 1);
  }
}

/// Of any 1000 consecutive samples, 300 on average come from b: standard deviation at most 14.5.
TEST(MixtureTest, SharesHoldInShortRunsToo) {
  const Mixture mixture({{0.7, "a"}, {0.3, "b"}}, 1);
  for (const std::int64_t first : {0L, 4'500L, 999'999'500L, 1'000'000'000'000L}) {
    std::int64_t from_b = 0;
    for (std::int64_t i = first; i < first + 1000; ++i) from_b += mixture.place(i).source == 1 ? 1 : 0;
    EXPECT_NEAR(static_cast<double>(from_b), 300, 75) << first;
  }
}

TEST(MixtureTest, BlocksAndSeedsHaveDifferentOrders) {
  const auto sources = [](std::uint64_t seed, std::int64_t first) {
    const Mixture mixture({{0.5, "a"}, {0.5, "b"}}, seed);
    std::string text;
    for (std::int64_t i = first; i < first + 64; ++i) text += mixture.place(i).source == 0 ? 'a' : 'b';
    return text;
  };
  EXPECT_EQ(sources(1, 0), sources(1, 0));
  EXPECT_NE(sources(1, 0), sources(2, 0));
  EXPECT_NE(sources(1, 0), sources(1, kMixtureBlock));
}

/// `count` 16-bit zeros that take no memory: a hole in a file.
TokenView hole(std::int64_t count, const std::string& name) {
  FileDescriptor file(::memfd_create("hole", MFD_CLOEXEC));
  EXPECT_EQ(::ftruncate(file.get(), count * 2), 0);
  std::vector<TokenFile> files;
  files.emplace_back(DataFile(std::move(file), name), TokenLayout{.count = count, .type = TokenType::U16});
  return {std::make_shared<const TokenStream>(std::move(files)), 0, count, name};
}

/// The order of a corpus of 10^12 tokens is not stored: samples from three epochs take no memory and come from
/// different windows. (Sanitizers keep freed memory. A bit for each window would take 116 MiB.)
TEST(MixtureTest, ATrillionTokensTakeNoMemory) {
  constexpr std::int64_t kTokens = 1'000'000'000'000;
  const Samples samples(
      {{hole(kTokens * 7 / 10, "a"), hole(kTokens * 3 / 10, "b")}, Mixture({{0.7, "a"}, {0.3, "b"}}, 1)},
      {.sequence = 1023, .seed = 1});
  ASSERT_EQ(samples.count(), kTokens * 7 / 10 / 1024 + kTokens * 3 / 10 / 1024);
  const std::int64_t steps = 3 * samples.count() / 1000;
  static_cast<void>(samples.sample_at(0));
  const double before = peak_resident_bytes();
  for (std::int64_t step = 0; step < steps; step += steps / 1000)
    ASSERT_EQ(samples.sample_at(1000 * step + 999).tokens.size(), 1023U);
#ifdef CHIMERA_SANITIZED
  constexpr double kMax = 64 << 20;
#else
  constexpr double kMax = 1 << 20;
#endif
  EXPECT_LT(peak_resident_bytes() - before, kMax);
}

TEST(MixtureTest, AnEpochOfATrillionTokensRepeatsNoWindow) {
  constexpr std::int64_t kWindows = 1'000'000'000'000 / 1024;
  const Permutation order(kWindows, 1, "data.permutation.2");
  std::set<std::int64_t> seen;
  for (std::int64_t i = kWindows - 20'000; i < kWindows; ++i) {
    const std::int64_t window = order(i);
    ASSERT_TRUE(window >= 0 && window < kWindows);
    ASSERT_TRUE(seen.insert(window).second);
  }
}

}  // namespace
}  // namespace chimera
