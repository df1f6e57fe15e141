#include "telemetry/top_view.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "core/error.h"
#include "support/scratch.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

TEST(LiveRanksTest, FindsTheWriterOfTheMetricsAndTheStatesOfRanks) {
  const testing::Scratch folder;
  const std::string path = folder.write("metrics.jsonl", "");
  EXPECT_FALSE(LiveRun::find(path));
  const FileDescriptor reader(::open(path.c_str(), O_RDONLY));
  EXPECT_FALSE(LiveRun::find(path)) << "who only reads is no run";
  const FileDescriptor writer(::open(path.c_str(), O_WRONLY | O_APPEND));
  ProgressPage page(2, 30);
  page.note(0, {.phase = RankProgress::Phase::Joining});
  page.note(1, {.phase = RankProgress::Phase::Steps, .step = 7});
  const auto run = LiveRun::find(path);
  ASSERT_TRUE(run);
  EXPECT_EQ(run->process(), ::getpid());
  const auto ranks = run->watch(std::chrono::milliseconds(0));
  ASSERT_EQ(ranks.size(), 2U);
  EXPECT_EQ(ranks[0].doing, "joining the other ranks");
  EXPECT_EQ(ranks[0].waiting, 1);
  EXPECT_EQ(ranks[1].step, 7);
  EXPECT_EQ(ranks[1].waiting, 0);
  EXPECT_EQ(run->steps(), 30);
  page.set_process(1, ::getpid());
  const auto seen = run->watch(std::chrono::milliseconds(0));
  EXPECT_EQ(seen[1].process, ::getpid());
  EXPECT_TRUE(seen[1].is_here);
  EXPECT_EQ(seen[0].doing, "not seen here");
  page.set_process(0, 0x7fffffff);  // No process has such a number
  EXPECT_EQ(run->watch(std::chrono::milliseconds(0))[0].doing, "lost");
}

TEST(LiveRanksTest, RefusesAFileOfAnotherKind) {
  const testing::Scratch folder;
  const std::string path = folder.write("odd", "nine bytes");
  EXPECT_THROW((void)ProgressPage::open_read_only(FileDescriptor(::open(path.c_str(), O_RDONLY))), Error);
}

TEST(LiveRanksTest, AStragglerHardlyWaits) {
  const auto ranks = [](std::vector<double> waiting) {
    std::vector<LiveRank> all;
    for (const double share : waiting) all.push_back({0, "", share});
    return all;
  };
  EXPECT_THAT(stragglers(ranks({0.6, 0.05, 0.7, 0.6})), ElementsAre(1));
  EXPECT_THAT(stragglers(ranks({0.5, 0.4, 0.45, 0.5})), IsEmpty());
  EXPECT_THAT(stragglers(ranks({0.1, 0.01, 0.1, 0.1})), IsEmpty()) << "nobody waits long";
  EXPECT_THAT(stragglers({}), IsEmpty());
}

}  // namespace
}  // namespace chimera
