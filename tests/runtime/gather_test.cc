#include "runtime/gather.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "transport/threads/rank_threads.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(GatherTest, EachRankGetsTheNumbersAndTextsOfAll) {
  const std::vector<std::vector<double>> numbers = {{0.1, -2}, {}, {3}};
  const std::vector<std::string> texts = {"", "wte.weight\n\xC3\xA9", "b"};
  run_rank_threads(3, {}, [&](RankId rank, Transport& transport) {
    EXPECT_EQ(gather(numbers[rank.index()], rank, 3, transport), numbers);
    EXPECT_EQ(gather_texts(texts[rank.index()], rank, 3, transport), texts);
    EXPECT_THAT(gather({}, rank, 3, transport), ElementsAre(IsEmpty(), IsEmpty(), IsEmpty()));
  });
}

}  // namespace
}  // namespace chimera
