#include "validation/validation.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "model_config/tensor_cut.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

Validated run_with(double predicted, std::vector<double> seconds, double predicted_bytes, double bytes) {
  return {validation_grid().front(), predicted, std::move(seconds), predicted_bytes, bytes, 2 * bytes};
}

TEST(ValidationTest, TheGridVariesTheDocumentedParameters) {
  const auto grid = validation_grid();
  std::set<std::string> names;
  std::set<std::string> models;
  std::set<std::string> schedules;
  std::set<std::int64_t> stages;
  for (const GridRun& run : grid) {
    names.insert(describe(run));
    models.insert(run.model);
    schedules.insert(run.schedule);
    stages.insert(run.stages);
  }
  EXPECT_EQ(names.size(), grid.size()) << "no run twice";
  EXPECT_EQ(models, (std::set<std::string>{"bert-tiny", "gpt2-mini", "gpt2-tiny", "llama-mini"}));
  EXPECT_GE(schedules.size(), 3U);
  EXPECT_EQ(stages, (std::set<std::int64_t>{1, 2, 4}));
  EXPECT_TRUE(names.contains("gpt2-mini b 2, chimera D 4 N 8, recompute"));
  EXPECT_TRUE(names.contains("bert-tiny b 8, zb-h1 D 2 N 2, threads"));
  EXPECT_TRUE(names.contains("gpt2-mini b 1, 1f1b W 2 D 2 N 2, vocabulary 16384, sequence 32, sockets"));
  EXPECT_TRUE(names.contains("gpt2-tiny b 1, chimera D 4 N 4, sequence 1024, recompute"));
  EXPECT_TRUE(names.contains("llama-mini b 2, gpipe T 2 D 1 N 4"));
}

TEST(ValidationTest, LayersThatRanksShareHaveHeadsForEach) {
  for (const GridRun& run : validation_grid()) {
    const std::vector<std::string> flags = training_flags(run);
    const bool is_split = std::ranges::count(flags, "--tensor-parallel") > 0;
    EXPECT_EQ(is_split, run.tensor_parallel > 1) << describe(run);
    EXPECT_EQ(std::ranges::count(flags, "--heads"), is_split ? 1 : 0) << describe(run);
    EXPECT_NO_THROW(require_divisible(model_of(run), run.tensor_parallel)) << describe(run);
  }
}

TEST(ValidationTest, ErrorsAreRelativeToTheMedianMeasurement) {
  const Validated one = run_with(1.1, {1.2, 0.8}, 90, 100);
  EXPECT_DOUBLE_EQ(one.time_error(), 1.1 - 1);
  EXPECT_DOUBLE_EQ(one.memory_error(), 0.9 - 1);
  EXPECT_DOUBLE_EQ(one.spread(), 1.5 - 1);
  EXPECT_DOUBLE_EQ(run_with(1, {1, 3, 2, 3, 9, 3}, 1, 1).spread(), 0.5) << "medians 2 and 3";
}

TEST(ValidationTest, SummaryIsOfAbsoluteErrors) {
  const std::vector<Validated> runs = {run_with(0.9, {1, 1}, 1, 1), run_with(1.2, {1, 1}, 1.5, 1),
                                       run_with(1.02, {1, 1}, 1.1, 1)};
  const ValidationSummary all = summarize(runs);
  EXPECT_NEAR(all.median_time_error, 0.1, 1e-12);
  EXPECT_NEAR(all.worst_time_error, 0.2, 1e-12);
  EXPECT_NEAR(all.median_memory_error, 0.1, 1e-12);
  const std::string text = to_text({.runs = runs, .measured_on = "a machine"});
  EXPECT_THAT(text, StartsWith("a machine\n"));
  EXPECT_THAT(text, HasSubstr("3 runs, none left out; medians of 2 turns each"));
  EXPECT_THAT(text, HasSubstr("median error 10.0 % (5 %: NOT MET), worst 20.0 % (15 %: NOT MET)"));
  EXPECT_THAT(text, HasSubstr("| gpt2-mini, 2 workers | 3 | +2.0 % | 10.0 % | 20.0 % |"));
}

}  // namespace
}  // namespace chimera
