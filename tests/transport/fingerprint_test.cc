
#include "transport/fingerprint.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace chimera {
namespace {

Fingerprint print(std::uint64_t build, std::uint64_t seed, std::uint64_t program) {
  return {{"the build", build}, {"--seed", seed}, {"the program", program}};
}

/// The error that rank `rank` gets.
std::string told(const std::vector<Fingerprint>& ranks, int rank) {
  std::vector<FingerprintWords> words;
  for (const Fingerprint& fingerprint : ranks) words.push_back(to_words(fingerprint));
  try {
    require_equal(ranks[static_cast<std::size_t>(rank)], words, rank);
    return "";
  } catch (const ConfigError& error) {
    return std::string("wrong: ") + error.what();
  } catch (const PeerLostError& error) {
    return std::string("innocent: ") + error.what();
  }
}

TEST(FingerprintTest, EqualRanksAreFine) {
  EXPECT_EQ(told({print(1, 2, 3), print(1, 2, 3)}, 0), "");
  EXPECT_EQ(told({print(1, 2, 3)}, 0), "");
}

TEST(FingerprintTest, TheMinorityIsWrong) {
  const std::vector<Fingerprint> ranks = {print(1, 9, 3), print(1, 2, 3), print(1, 2, 3)};
  EXPECT_EQ(told(ranks, 0),
            "wrong: this rank differs from rank 1 in --seed; start every rank from the same program with the same "
            "options");
  EXPECT_EQ(told(ranks, 1), "innocent: rank 1: rank 0 was started differently");
  EXPECT_EQ(told(ranks, 2), "innocent: rank 2: rank 0 was started differently");
}

TEST(FingerprintTest, OfTwoRanksTheSecondIsWrong) {
  const std::vector<Fingerprint> ranks = {print(1, 2, 3), print(1, 4, 5)};
  EXPECT_THAT(told(ranks, 0), ::testing::StartsWith("innocent"));
  EXPECT_THAT(told(ranks, 1), ::testing::HasSubstr("differs from rank 0 in --seed and the program;"));
}

TEST(FingerprintTest, DifferentBuildHidesOtherDifferences) {
  EXPECT_THAT(told({print(1, 2, 3), print(7, 4, 3)}, 1), ::testing::HasSubstr("in the build;"));
}

}  // namespace
}  // namespace chimera
