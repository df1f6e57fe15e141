// `chimera sweep`, as its users see it.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "support/program.h"
#include "support/refusal.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

TEST(SweepCommandTest, HasTheRowsOfSimulateAndAChart) {
  const Scratch scratch;
  const std::vector<std::string> shapes = {"--schedules", "1f1b,chimera", "--stages", "4", "--micro-batches", "D,2D"};
  std::vector<std::string> sweep = {"sweep", "--chart", scratch.path("chart.svg")};
  std::vector<std::string> simulate = {"simulate"};
  sweep.insert(sweep.end(), shapes.begin(), shapes.end());
  simulate.insert(simulate.end(), shapes.begin(), shapes.end());
  EXPECT_EQ(run_program(sweep).output, run_program(simulate).output);
  const std::string chart = read_file(scratch.path("chart.svg"));
  EXPECT_THAT(chart, HasSubstr("bubble_ratio over micro_batches"));
  EXPECT_THAT(chart, HasSubstr("chimera, D = 4"));
}

TEST(SweepCommandTest, DrawsThePapersFiguresBesideOurs) {
  const Scratch scratch;
  const ProgramResult result = run_program({"sweep", "--paper", scratch.path("figures")});
  ASSERT_EQ(result.exit_code, 0) << result.messages;
  const std::string values = read_file(scratch.path("figures/figures.csv"));
  for (const char* exact :
       {"figure-2-chimera,\"makespan\",16,16\n", "figure-3,\"makespan\",10,10\n", "figure-7b,\"makespan\",30,30\n",
        "figure-7d,\"makespan\",27,27\n", "figure-8,\"makespan\",18,18\n"}) {
    EXPECT_THAT(values, HasSubstr(exact));
  }
  EXPECT_THAT(values, HasSubstr("figure-13,\"W8 D4 B8, sequences/s\",173.3,"));
  EXPECT_THAT(read_file(scratch.path("figures/index.html")), HasSubstr("figure-9"));
}

TEST(SweepCommandTest, SaysWhatItCannotDraw) {
  expect_refusal({{"sweep", "--schedules", "gpipe", "--stages", "4", "--micro-batches", "4", "--chart", "c.svg",
                   "--value", "makespam"},
                  {"makespam", "makespan"}});
  expect_refusal({{"sweep", "--stages", "4", "--micro-batches", "4", "--steps", "3"}, {"--steps", "--train"}});
}

}  // namespace
}  // namespace chimera::testing
