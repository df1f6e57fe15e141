#include "train/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "support/training.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

TEST(ReportTest, TimesAreSaidAsPeopleSayThem) {
  using std::chrono::seconds;
  EXPECT_EQ(in_words(seconds(45)), "45 s");
  EXPECT_EQ(in_words(seconds(200)), "3 min 20 s");
  EXPECT_EQ(in_words(seconds(7500)), "2 h 5 min");
}

TEST(ReportTest, ProgressFitsALine) {
  StepMetrics metrics;
  metrics.step = 20;
  metrics.loss = 3.21449;
  metrics.gradient_norm = 0.9;
  metrics.step_seconds = 0.4;
  metrics.tokens_per_second = 12'345;
  EXPECT_EQ(progress_line(metrics, 100), "step 20/100  loss 3.2145  grad 0.90  12.3 ktok/s  0.400 s/step  ETA 32 s");
  metrics.validation_loss = 3.5;
  EXPECT_LE(progress_line(metrics, 100).size(), 100U);
  EXPECT_THAT(progress_line(metrics, 100), HasSubstr("validation 3.5000"));
}

TEST(ReportTest, MetricsAreOneObjectALineWithAllDigits) {
  StepMetrics metrics;
  metrics.loss = 0.1;
  metrics.gradient_norm = 1.0 / 3;
  metrics.validation_loss = 5.5;
  const std::string line = to_json_line(metrics);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["loss"], 0.1);
  EXPECT_EQ(json["grad_norm"], 1.0 / 3);
  EXPECT_EQ(json["validation_loss"], 5.5);
  EXPECT_FALSE(nlohmann::json::parse(to_json_line({})).contains("validation_loss"));
}

RunSummary measured(const Job& job, double forward, double backward) {
  RunSummary run;
  run.op_times = OpTimes(job.schedule.stages);
  for (std::int64_t s = 0; s < job.schedule.stages; ++s) {
    const Op op{OpKind::Forward, {}, StageId(s), {}};
    run.op_times.add(op, {forward, forward});
    run.op_times.add({OpKind::Backward, {}, op.stage, {}}, {backward, backward});
  }
  run.step_seconds = 20;
  return run;
}

TEST(ReportTest, SummarySetsMeasuredBesideSimulated) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  EXPECT_THAT(summary(job, measured(job, 1, 2), 4),
              HasSubstr("measured 20.0000 s (median); predicted 16.0000 s (-20.0 %)"));
}

TEST(ReportTest, SummarySaysWhereRanksShareCores) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  const std::string text = summary(job, measured(job, 1, 2), 2);
  EXPECT_THAT(text, HasSubstr("4 ranks share 2 cores"));
  EXPECT_THAT(text, HasSubstr("predicted 24.0000 s"));  // 48 s of work on two cores
}

}  // namespace
}  // namespace chimera
