#include "train/observe/progress_report.h"
#include "train/observe/step_summary.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "core/json.h"
#include "support/training.h"
#include "telemetry/run_history.h"
#include "train/setup/device.h"

namespace chimera {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

TEST(ReportTest, TimesAreReadable) {
  EXPECT_EQ(duration_text(45), "45 s");
  EXPECT_EQ(duration_text(200), "3 min 20 s");
  EXPECT_EQ(duration_text(7500), "2 h 5 min");
}

StepMetrics step_20() {
  StepMetrics metrics;
  metrics.step = 20;
  metrics.loss = 3.21449;
  metrics.gradient_norm = 0.9;
  metrics.step_seconds = 0.4;
  metrics.tokens_per_second = 12'345;
  return metrics;
}

TEST(ReportTest, ProgressFitsALine) {
  StepMetrics metrics = step_20();
  EXPECT_EQ(progress_line(metrics, 100), "step 20/100  loss 3.2145  grad 0.90  12.3 ktok/s  0.400 s/step  ETA 32 s");
  metrics.validation_loss = 3.5;
  EXPECT_LE(progress_line(metrics, 100).size(), 100U);
  EXPECT_THAT(progress_line(metrics, 100), HasSubstr("validation 3.5000"));
}

TEST(ReportTest, ProgressFitsANarrowTerminal) {
  EXPECT_EQ(progress_line(step_20(), 100, 56), "step 20/100  loss 3.2145  12.3 ktok/s  ETA 32 s");
  EXPECT_EQ(progress_line(step_20(), 100, 40), "step 20/100  loss 3.2145  12.3 ktok/s");
  EXPECT_EQ(progress_line(step_20(), 100, 20), "step 20/100  loss 3.2145");
}

TEST(ReportTest, ProgressHasMemoryAndUtilizationIfKnown) {
  StepMetrics metrics = step_20();
  metrics.peak_memory_bytes = 300 << 20;
  metrics.utilization = 0.4123;
  metrics.seconds_left = 130;
  EXPECT_EQ(progress_line(metrics, 100),
            "step 20/100  loss 3.2145  grad 0.90  12.3 ktok/s  MFU 41.2 %  300 MiB  0.400 s/step  ETA 2 min 10 s");
  metrics.utilization = 2.856;
  EXPECT_THAT(progress_line(metrics, 100), HasSubstr("  MFU 285.6 % (impossible)  "));
  metrics.utilization = 1;
  EXPECT_THAT(progress_line(metrics, 100), HasSubstr("  MFU 100.0 %  "));
  metrics.peak_memory_bytes = 1.5 * (1 << 30);
  EXPECT_THAT(progress_line(metrics, 100), HasSubstr("  1.50 GiB  "));
}

TEST(ReportTest, SamplesAreOneLineForATerminal) {
  EXPECT_EQ(sample_line("one\r\ntwo \x1B[2J \xC3\xB1"), "  sample: one  two  [2J \xC3\xB1");
  EXPECT_EQ(sample_line("one \xC2\x9B"
                        "2J \xC2\xA0 two"),
            "  sample: one  2J \xC2\xA0 two");
}

TEST(ReportTest, ProgressOfLongRunsOmitsDerivedNumbers) {
  StepMetrics metrics;
  metrics.step = 123'456;
  metrics.loss = 13.21449;
  metrics.gradient_norm = 123.4;
  metrics.step_seconds = 12.345;
  metrics.tokens_per_second = 123'456;
  metrics.peak_memory_bytes = 100.0 * (1 << 30);
  metrics.utilization = 0.4123;
  metrics.seconds_left = 1e6;
  EXPECT_EQ(progress_line(metrics, 600'000),
            "step 123456/600000  loss 13.2145  123.5 ktok/s  MFU 41.2 %  100.00 GiB  ETA 277 h 46 min");
  metrics.validation_loss = 14.25;
  EXPECT_EQ(progress_line(metrics, 600'000),
            "step 123456/600000  loss 13.2145  validation 14.2500  123.5 ktok/s  MFU 41.2 %  ETA 277 h 46 min");
}

TEST(ReportTest, ALogHasALineAtLeastEveryTenSeconds) {
  const LogInterval usual(1000, {});
  EXPECT_TRUE(usual.shows(1, 0));
  EXPECT_TRUE(usual.shows(50, 0)) << "one of twenty lines";
  EXPECT_FALSE(usual.shows(51, 9));
  EXPECT_TRUE(usual.shows(51, 10));
  EXPECT_TRUE(usual.shows(1000, 0));
  const LogInterval by_steps(1000, {.steps = 7});
  EXPECT_TRUE(by_steps.shows(14, 0));
  EXPECT_FALSE(by_steps.shows(50, 100));
  const LogInterval by_time(1000, {.seconds = 60});
  EXPECT_FALSE(by_time.shows(50, 59));
  EXPECT_TRUE(by_time.shows(51, 60));
  EXPECT_EQ(by_time.max_silence(), 60);
  EXPECT_EQ(running_line(12, 100, std::chrono::seconds(80)), "step 12/100  running for 1 min 20 s");
}

TEST(ReportTest, RemainingTimeUsesTheLastSteps) {
  RemainingTime pace(100);
  const auto after = [&](std::int64_t step, double seconds) { return pace.seconds_left(step, seconds); };
  EXPECT_DOUBLE_EQ(after(1, 10), 990);
  EXPECT_DOUBLE_EQ(after(2, 1), 98) << "the first step counts no more";
  EXPECT_DOUBLE_EQ(after(3, 3), 97 * 2);
  for (std::int64_t step = 4; step < 24; ++step) (void)after(step, 5);
  EXPECT_DOUBLE_EQ(after(24, 5), 76 * 5) << "the last twenty";
  RemainingTime resumed(100);
  EXPECT_DOUBLE_EQ(resumed.seconds_left(51, 10), 490);
  EXPECT_DOUBLE_EQ(resumed.seconds_left(52, 1), 48) << "of a resumed run, too";
}

TEST(ReportTest, StepFlopsAreThoseOfAllSamples) {
  const auto flops_of = [](const PipelineShape& shape, std::int64_t data_parallel) {
    TrainOptions options = testing::small_options("gpt2-tiny", "chimera", shape);
    options.parallel.data_parallel = data_parallel;
    return step_flops(prepare_job(options), options);
  };
  EXPECT_GT(flops_of({2, 4}, 1), 0);
  EXPECT_DOUBLE_EQ(flops_of({4, 4}, 2), 2 * flops_of({2, 4}, 1));
}

TEST(ReportTest, MetricsAreOneObjectALineWithAllDigits) {
  StepMetrics metrics;
  metrics.loss = 0.1;
  metrics.gradient_norm = 1.0 / 3;
  metrics.validation_loss = 5.5;
  const std::string line = to_json_line(metrics);
  EXPECT_EQ(line.find('\n'), line.size() - 1);
  const auto json = read_json(line);
  EXPECT_EQ(json["loss"], 0.1);
  EXPECT_EQ(json["grad_norm"], 1.0 / 3);
  EXPECT_EQ(json["validation_loss"], 5.5);
  for (const char* field : {"validation_loss", "mfu", "eta_seconds", "sample"})
    EXPECT_FALSE(read_json(to_json_line({})).contains(field)) << field;
  metrics.utilization = 0.5;
  metrics.seconds_left = 7;
  metrics.sample = "a \"b\"\n\x01\xC3\xB1";
  EXPECT_EQ(read_json(to_json_line(metrics))["sample"], *metrics.sample);
  EXPECT_EQ(to_json_line(metrics).find('\n'), to_json_line(metrics).size() - 1);
  EXPECT_EQ(read_json(to_json_line(metrics))["mfu"], 0.5);
  EXPECT_EQ(read_json(to_json_line(metrics))["eta_seconds"], 7);
}

RunSummary measured(const Job& job, double forward, double backward) {
  RunSummary run;
  run.op_times = OpTimes(job.run.schedule.stages);
  for (std::int64_t s = 0; s < job.run.schedule.stages; ++s) {
    const Op op{OpKind::Forward, {}, StageId(s), {}};
    run.op_times.add(op, {forward, forward});
    run.op_times.add({OpKind::Backward, {}, op.stage, {}}, {backward, backward});
  }
  run.step_seconds = 20;
  return run;
}

TEST(ReportTest, SummaryComparesMeasuredAndSimulated) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  const std::string text = speed_summary(job, job.options, measured(job, 1, 2), 4);
  EXPECT_THAT(text, HasSubstr("measured 20.0000 s (median); simulated 16.0000 s (-20.0 %)\n"));
  EXPECT_THAT(text, Not(HasSubstr("planned")));
  EXPECT_THAT(text, HasSubstr("it is unknown how much other processes used the cores"));
}

/// A run of 20 s whose simulation takes 16 s, of which ops take 12 s on each rank.
RunSummary slower_than_simulated(const Job& job) {
  RunSummary run = measured(job, 1, 2);
  run.compute_seconds = 12;
  run.waits = {.messages = 4.25, .sums = 2.5, .ranks = 1};
  return run;
}

TEST(ReportTest, SummaryNamesTheLargestPartOfTheDifference) {
  Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  const RunSummary run = slower_than_simulated(job);
  EXPECT_THAT(
      speed_summary(job, job.options, run, 4),
      HasSubstr("  measured - simulated = +4.0000 s: ops +0.0000 s, messages +0.2500 s, sums +2.5000 s, slowest "
                "rank +1.0000 s, rest +0.2500 s\n  beside ops, most time goes to messages (21 % of a step)\n  it is "
                "unknown how much other "
                "processes used the cores, which "));
  job.options.planned.step_seconds = 5;
  const std::string planned = speed_summary(job, job.options, run, 4);
  EXPECT_THAT(planned, HasSubstr("simulated 16.0000 s (-20.0 %); planned 5.0000 s (-75.0 %)\n"));
  EXPECT_THAT(planned, HasSubstr("  measured - planned = +15.0000 s: ops +11.0000 s, messages +0.2500 s, "));
  EXPECT_THAT(planned, HasSubstr("\n  ops and updates alone take longer than the planned step: "));
  job.options.planned.step_seconds = 19;
  EXPECT_THAT(speed_summary(job, job.options, run, 4), Not(HasSubstr("most time"))) << "a small difference";
}

TEST(ReportTest, SummaryBlamesOtherProcesses) {
  Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  job.options.planned.step_seconds = 5;
  RunSummary run = slower_than_simulated(job);
  run.others_share = 0.04;
  EXPECT_THAT(speed_summary(job, job.options, run, 4),
              ::testing::AllOf(HasSubstr("\n  ops and updates alone take longer than the planned step: "),
                               HasSubstr("\n  other processes used 4 % of the cores meanwhile\n")));
  run.others_share = 0.5;
  const std::string text = speed_summary(job, job.options, run, 4);
  EXPECT_THAT(text,
              HasSubstr("\n  other processes used 50 % of the cores meanwhile, but ops hardly waited for a core\n"));
  EXPECT_THAT(text, HasSubstr("\n  apart from that, ops and updates alone take longer than the planned step: "));
  EXPECT_EQ(text.find("other processes"), text.rfind("other processes")) << text;
}

TEST(ReportTest, EndsWithWhatToDoNext) {
  Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  EXPECT_THAT(end_of_run_text(job, ""), HasSubstr("the trained model is not kept"));
  job.options.checkpoint.folder = "run";
  job.options.output.report = "report.html";
  EXPECT_THAT(end_of_run_text(job, ""), ::testing::StartsWith("saved run/step-00000020\n"));
  EXPECT_THAT(end_of_run_text(job, ""), HasSubstr("\nreport: report.html\n"));
  EXPECT_THAT(end_of_run_text(job, ""), EndsWith("\nuse the model: chimera generate --from run --prompt TEXT, or "
                                                 "chimera evaluate --from run --data FILE --sequence 16\n"));
  job.data.tokenizer.clear();
  EXPECT_THAT(end_of_run_text(job, ""), HasSubstr(" --prompt TEXT --tokenizer FILE, or chimera evaluate"));
  job.model.family = Family::Bert;
  EXPECT_THAT(end_of_run_text(job, ""), HasSubstr("\nuse the model: chimera evaluate --from run"));
  EXPECT_THAT(end_of_run_text(job, "hf"), HasSubstr("\nexported hf\n"));
  job.first_step = job.options.updates.steps;
  EXPECT_THAT(end_of_run_text(job, ""), ::testing::StartsWith("nothing is left to do: all 20 steps are done"));
}

TEST(ReportTest, SummaryHasTheMemoryOfAGpu) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  RunSummary run = measured(job, 1, 2);
  run.peak_memory_bytes = 3 << 20;
  EXPECT_EQ(speed_summary(job, job.options, run, 4).find("GPU"), std::string::npos);
  run.used_memory_bytes = 1.5 * (1 << 30);
  EXPECT_THAT(speed_summary(job, job.options, run, 4),
              HasSubstr("GPU memory: tensors 3 MiB at most; in use 1.50 GiB at most"));
}

TEST(ReportTest, SummarySaysIfRanksShareCores) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {4, 4, 2}));
  const std::string text = speed_summary(job, job.options, measured(job, 1, 2), 2);
  EXPECT_THAT(text, HasSubstr("4 ranks share 2 cores"));
  EXPECT_THAT(text, HasSubstr("simulated 24.0000 s"));  // 48 s of work on two cores
}

}  // namespace
}  // namespace chimera
