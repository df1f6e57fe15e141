#include "telemetry/comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/json.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

RunHistory run_of(const std::string& name, double speed, const Configuration& configuration = {}) {
  RunHistory run{.name = name, .metrics = name, .steps = {}, .configuration = configuration};
  for (int step = 1; step <= 4; ++step)
    run.steps.push_back(
        {.step = step, .loss = 5.0 / step, .step_seconds = 1 / speed, .tokens_per_second = 100 * speed});
  run.steps.back().validation_loss = 1.5;
  return run;
}

TEST(ComparisonTest, ComparesFiguresWithTheFirstRun) {
  const std::string text = comparison_text({run_of("a", 1), run_of("b", 2)});
  EXPECT_THAT(text, ::testing::ContainsRegex("times the first +1.00 +2.00\n"));
  EXPECT_THAT(text,
              HasSubstr("settings are not compared: a, b were trained without --checkpoint, which records them\n"));
}

TEST(ComparisonTest, NamesOnlyDifferences) {
  const std::vector<RunHistory> runs = {
      run_of("a", 1, {{"model.layers", "8"}, {"layout.schedule", "chimera"}}),
      run_of("b", 1, {{"model.layers", "8"}, {"layout.schedule", "1f1b"}, {"x", "1"}})};
  const auto differences = differences_of(runs);
  ASSERT_EQ(differences.size(), 2U);
  EXPECT_EQ(differences[0].field, "layout.schedule");
  EXPECT_THAT(differences[1].values, ::testing::ElementsAre("", "1"));
  const std::string text = comparison_text(runs);
  EXPECT_THAT(text, HasSubstr("layout.schedule  chimera  1f1b"));
  EXPECT_THAT(text, Not(HasSubstr("model.layers")));
  EXPECT_EQ(read_json(comparison_json(runs))["differences"]["layout.schedule"][1], "1f1b");
  EXPECT_THAT(comparison_text({runs[0], runs[0]}), HasSubstr("the configurations are the same"));
}

TEST(ComparisonTest, PagesAndPicturesEscapeNames) {
  const std::vector<RunHistory> runs = {run_of("<a>", 1), run_of("b&c", 2)};
  const std::string page = comparison_page(runs);
  EXPECT_THAT(page, HasSubstr("&lt;a&gt;"));
  EXPECT_THAT(page, Not(HasSubstr("<a>")));
  EXPECT_THAT(page, Not(HasSubstr("http://www.w3.org/1999")));
  EXPECT_THAT(comparison_svg(runs), HasSubstr("b&amp;c, validation"));
}

TEST(ComparisonTest, ChartsMarkLostRanks) {
  std::vector<RunHistory> runs = {run_of("a", 1), run_of("b", 2)};
  EXPECT_THAT(comparison_page(runs), Not(HasSubstr("ranks lost or back")));
  runs[1].steps[1].workers = runs[1].steps[2].workers = 3;
  const std::string chart = to_svg(kTokensPerSecond, runs);
  EXPECT_THAT(chart, HasSubstr("b, ranks lost or back"));
  EXPECT_THAT(chart, Not(HasSubstr("a, ranks")));
  EXPECT_THAT(comparison_svg(runs), HasSubstr("b, ranks lost or back"));
  runs[0].steps[1].order = "rank 1 takes 2.1 times as long";
  EXPECT_THAT(comparison_svg(runs), HasSubstr("a, order changed"));
  EXPECT_THAT(to_svg(kTokensPerSecond, runs), HasSubstr("a, order changed"));
  EXPECT_THAT(comparison_svg(runs), Not(HasSubstr("b, order changed")));
  EXPECT_THAT(comparison_page(runs), HasSubstr("<p>a, step 2: rank 1 takes 2.1 times as long</p>"));
  EXPECT_THAT(comparison_page({runs[1], runs[1]}), Not(HasSubstr("Changes of the order")));
}

TEST(ComparisonTest, ARunWithoutStepsIsNamed) {
  EXPECT_THAT(
      [&] {
        (void)comparison_text(
            {run_of("a", 1), RunHistory{.name = "b", .metrics = "b.jsonl", .steps = {}, .configuration = {}}});
      },
      ::testing::ThrowsMessage<ConfigError>(HasSubstr("b.jsonl: this run has not finished a step")));
}

}  // namespace
}  // namespace chimera
