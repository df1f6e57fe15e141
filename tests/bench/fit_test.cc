#include "regression/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/files.h"
#include "plan/machines.h"
#include "plan/predict.h"
#include "support/message_of.h"
#include "support/paths.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;

/// Separate devices with a block that takes a second forward per sequence, and slow links.
MachineProfile slow_links() {
  MachineProfile machine = linear_machine();
  machine.point_to_point = {{1e-3, 1e-6}, {1e-3, 1e-6}};
  machine.all_reduce = {{0, 1e-7}, {0, 1e-7}};
  return machine;
}

/// Runs in figures of three, whose step times `machine` predicts.
std::vector<MeasuredRun> runs_on(const MachineProfile& machine) {
  std::vector<MeasuredRun> runs;
  for (const std::int64_t depth : {2, 4}) {
    for (const std::int64_t groups : {1, 2, 4}) {
      for (const std::int64_t size : {1, 4}) {
        MeasuredRun run{.figure = size == 1 ? "short" : "long",
                        .problem = problem_of(depth * groups, 4 * groups * size)};
        run.problem.machine = machine;
        run.candidate = {.schedule = "1f1b",
                         .shape = {.stages = depth, .micro_batches = 4},
                         .data_parallel = groups,
                         .micro_batch_size = size};
        run.step_seconds = Predictor(run.problem).predict(run.candidate).step_seconds;
        runs.push_back(run);
      }
    }
  }
  return runs;
}

const std::vector<FitScalar> kUsual = {FitScalar::Layers, FitScalar::Sent, FitScalar::Summed};

TEST(FitTest, FindsTheScalarsOfAKnownMachine) {
  MachineProfile real = with_scalar(slow_links(), FitScalar::Layers, 1.5);
  real = with_scalar(with_scalar(real, FitScalar::Sent, 3e-6), FitScalar::Summed, 4e-8);
  const MachineFit fit = fit_machine(slow_links(), runs_on(real), kUsual);
  ASSERT_EQ(fit.scalars.size(), 3U);
  EXPECT_NEAR(fit.scalars[0].value, 1.5, 0.01);
  EXPECT_NEAR(fit.scalars[1].value / 3e-6, 1, 0.05);
  EXPECT_NEAR(fit.scalars[2].value / 4e-8, 1, 0.05);
  EXPECT_NEAR(fit.machine.layers[1].times[0].forward, 1.5, 0.01);
  EXPECT_NEAR(fit.machine.point_to_point.within_node.beta / 3e-6, 1, 0.05);
  EXPECT_LT(summarize_errors(fit.errors.figure_left_out).median, 0.01);
  EXPECT_LE(fit.scalars[0].low, fit.scalars[0].value + 0.02);
  EXPECT_GE(fit.scalars[0].high, fit.scalars[0].value - 0.02);
}

TEST(FitTest, OneWrongMeasurementHardlyMatters) {
  const MachineProfile real = with_scalar(slow_links(), FitScalar::Layers, 1.5);
  std::vector<MeasuredRun> runs = runs_on(real);
  runs[3].step_seconds *= 3;
  const MachineFit fit = fit_machine(slow_links(), runs, {FitScalar::Layers});
  EXPECT_NEAR(fit.scalars[0].value, 1.5, 0.05);
  EXPECT_LT(std::abs(fit.errors.fitted[3] + 2.0 / 3), 0.05);
}

TEST(FitTest, IsTheSameEveryTime) {
  const std::vector<MeasuredRun> runs = runs_on(with_scalar(slow_links(), FitScalar::Layers, 1.2));
  const MachineFit fit = fit_machine(slow_links(), runs, kUsual);
  EXPECT_EQ(to_text(fit, runs), to_text(fit_machine(slow_links(), runs, kUsual), runs));
  EXPECT_THAT(to_text(fit, runs), HasSubstr("factor on layer times"));
  EXPECT_THAT(to_text(fit, runs), HasSubstr("  without short"));
  EXPECT_THAT(fit.machine.sources.back(), HasSubstr("to the step times of 12 runs: factor on layer times 1."));
}

TEST(FitTest, RefusesTooFewRuns) {
  std::vector<MeasuredRun> runs = runs_on(slow_links());
  runs.resize(5);
  EXPECT_THAT(testing::message_of([&] { (void)fit_machine(slow_links(), runs, kUsual); }, "accepted"),
              HasSubstr("5 measured runs cannot fit 3 scalars"));
}

std::string refusal_of(const std::string& text) {
  return testing::message_of([&] { (void)measured_runs(text, "runs.toml"); }, "read");
}

TEST(MeasuredRunTest, ReadsRunsWithCommonKeysAtTheTop) {
  const auto runs = measured_runs(
      "model = \"bert-48\"\nschedule = \"chimera\"\ndata-parallel = 8\n"
      "[[runs]]\nfigure = \"13\"\nstages = 4\nmicro-batches = 8\nmicro-batch-size = 8\nscale = \"direct\"\n"
      "sequences-per-second = 128\n"
      "[[runs]]\nschedule = \"1f1b\"\nstages = 2\nmicro-batches = 3\nrecompute = \"full\"\nstep-seconds = 7\n",
      "runs.toml");
  ASSERT_EQ(runs.size(), 2U);
  EXPECT_EQ(runs[0].figure, "13");
  EXPECT_EQ(runs[0].problem.workers, 32);
  EXPECT_EQ(runs[0].problem.mini_batch, 512);
  EXPECT_EQ(runs[0].step_seconds, 4);
  EXPECT_EQ(runs[0].candidate.shape.scale, ScaleMethod::Direct);
  EXPECT_EQ(runs[1].candidate.schedule, "1f1b");
  EXPECT_EQ(runs[1].candidate.recompute.size(), 2U);
  EXPECT_EQ(runs[1].step_seconds, 7);
}

TEST(MeasuredRunTest, NamesFileAndLineOfAFault) {
  const std::string run = "model = \"bert-48\"\n[[runs]]\nstages = 4\nmicro-batches = 8\n";
  EXPECT_THAT(refusal_of("model = \"bert-48\"\n"), HasSubstr("runs.toml: has no [[runs]]"));
  EXPECT_THAT(refusal_of(run), HasSubstr("runs.toml:2: a run needs what was measured"));
  EXPECT_THAT(refusal_of(run + "step-seconds = 0\n"),
              HasSubstr("runs.toml:5: 'step-seconds' must be a number above 0"));
  EXPECT_THAT(refusal_of(run + "step-secnds = 1\n"), HasSubstr("did you mean 'step-seconds'"));
  EXPECT_THAT(refusal_of(run + "step-seconds = 1\nschedule = \"chimra\"\n"),
              HasSubstr("runs.toml:2: unknown schedule 'chimra'; did you mean 'chimera'?"));
  EXPECT_THAT(refusal_of("colour = 1\n" + run + "step-seconds = 1\n"), HasSubstr("runs.toml:1: "));
  EXPECT_THAT(refusal_of("[[runs]]\nstages = 4\nmicro-batches = 8\nstep-seconds = 1\n"),
              HasSubstr("'model' is missing"));
  EXPECT_THAT(refusal_of("runs = 3 4\n"), HasSubstr("runs.toml:1: "));
}

// The shipped profile is the fit to the paper's open figures.
TEST(PaperFitTest, TheShippedProfileIsFittedToTheOpenFigures) {
  const std::string file = testing::source_path("/benchmarks/paper/bert-48.toml");
  const auto runs = measured_runs(read_whole(file), file);
  EXPECT_GE(runs.size(), 114U);
  const MachineProfile machine = read_machine(testing::source_path("/machines/p100-aries.json"));
  std::vector<double> errors;
  for (const MeasuredRun& run : runs) {
    PlanProblem problem = run.problem;
    problem.machine = machine;
    Predictor predictor(problem);
    errors.push_back(predictor.step_seconds(predictor.prepare(run.candidate), run.candidate) / run.step_seconds - 1);
  }
  EXPECT_LT(summarize_errors(errors).median, 0.1);
  EXPECT_GE(machine.expected_error, summarize_errors(errors).median);
}

}  // namespace
}  // namespace chimera
