#include "paper/paper_figures.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

#include "support/message_of.h"
#include "support/paths.h"
#include "support/scratch.h"

namespace chimera::testing {
namespace {

using ::testing::HasSubstr;

TEST(PaperFiguresTest, DrawsThePapersValuesBesideOurs) {
  const Scratch scratch;
  write_paper_figures(scratch.path("figures"), source_path("/machines/p100-aries.json"));
  const std::string values = read_file(scratch.path("figures/figures.csv"));
  for (const char* exact :
       {"figure-2-chimera,\"makespan\",16,16\n", "figure-3,\"makespan\",10,10\n", "figure-7b,\"makespan\",30,30\n",
        "figure-7d,\"makespan\",27,27\n", "figure-8,\"makespan\",18,18\n"}) {
    EXPECT_THAT(values, HasSubstr(exact));
  }
  EXPECT_THAT(values, HasSubstr("figure-13,\"W8 D4 B8, sequences/s\",173.3,"));
  EXPECT_THAT(values, HasSubstr("figure-9,\"bert-48 W2 D16 B8, gems, GB\",3.32,"));
  EXPECT_THAT(values, HasSubstr("scaling,\"Chimera over gems\",2.34,"));
  const std::string page = read_file(scratch.path("figures/index.html"));
  EXPECT_THAT(page, HasSubstr("figure-9-bert-48-w2-d16-b8"));
  EXPECT_THAT(page, HasSubstr("sequences a second over workers"));
}

TEST(PaperFiguresTest, RefusesAFolderThatCannotBeCreated) {
  const Scratch scratch;
  const std::string file = scratch.write("file", "");
  EXPECT_THAT(
      message_of([&] { write_paper_figures(file + "/figures", source_path("/machines/p100-aries.json")); }, "accepted"),
      HasSubstr("--figures"));
}

}  // namespace
}  // namespace chimera::testing
