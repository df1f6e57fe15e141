#include "train/observe/observation.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <optional>

#include "core/json.h"
#include "render/html.h"
#include "simulate/costs_json.h"
#include "simulate/simulate.h"
#include "support/training.h"
#include "train/observe/measured_step.h"

namespace chimera {
namespace {

using nlohmann::json;

/// A step with given end times of instructions, by their text; other instructions take no time.
RecordedStep recorded(const Job& job, const std::vector<std::map<std::string, double>>& ends) {
  RecordedStep step;
  for (std::size_t w = 0; w < ends.size(); ++w) {
    double now = 100;
    auto& boundaries = step.boundaries.emplace_back(1, now);
    for (const Instruction& instruction : job.programs.training.workers[w]) {
      const auto end = ends[w].find(to_text(instruction));
      if (end != ends[w].end()) now = 100 + end->second;
      boundaries.push_back(now);
    }
    step.all_reduce_ends.emplace_back(static_cast<std::size_t>(job.run.schedule.stages), 0);
  }
  return step;
}

using Causes = std::vector<std::pair<std::string, double>>;

/// Cause and length of each bubble.
Causes causes(const std::vector<Bubble>& bubbles) {
  Causes causes;
  for (const Bubble& bubble : bubbles) causes.emplace_back(to_text(bubble.cause), bubble.end - bubble.start);
  return causes;
}

/// F takes 1 and B 2 on both of two stages, a message 0.25, the optimizer 0.5.
const std::vector<std::map<std::string, double>> kOneMicroBatch = {
    {{"0F0", 1}, {"wait for 1B0 from worker 1", 4.5}, {"0B0", 6.5}, {"optimizer step", 7}},
    {{"wait for 0F0 from worker 0", 1.25},
     {"1F0", 2.25},
     {"1B0", 4.25},
     {"sum norms and losses", 6.5},
     {"optimizer step", 7}}};

TEST(MeasuredStepTest, FindsTheCausesOfIdleTime) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "1f1b", {2, 1}));
  const MeasuredStep step = measured_step(job, GroupId(0), recorded(job, kOneMicroBatch));
  EXPECT_EQ(step.start, 100);
  EXPECT_EQ(step.timeline.makespan, 7);
  EXPECT_EQ(step.timeline.ops_end, 6.5);
  EXPECT_EQ(step.timeline.workers[0].busy, 3);
  EXPECT_EQ(causes(step.explanation.bubbles[0]), (Causes{{"dependency", 3.25}, {"latency", 0.25}, {"sync", 0.5}}));
  EXPECT_EQ(causes(step.explanation.bubbles[1]),
            (Causes{{"warm-up", 1}, {"latency", 0.25}, {"imbalance", 2.25}, {"sync", 0.5}}));
  ASSERT_EQ(step.transfers.size(), 2U);
  EXPECT_EQ(to_text(step.transfers[0].made), "0F0");
  EXPECT_EQ(step.transfers[0].sent, 1);
  EXPECT_EQ(step.transfers[0].arrived, 1.25);
}

TEST(MeasuredStepTest, RecomputationsAreNotIdleTime) {
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {2, 1});
  options.memory.recompute = {StageRule::Full};
  const Job job = prepare_job(options);
  auto ends = kOneMicroBatch;
  ends[0]["recompute for 0B0"] = 2;
  const MeasuredStep step = measured_step(job, GroupId(0), recorded(job, ends));
  ASSERT_EQ(step.recomputations[0].size(), 1U);
  EXPECT_EQ(to_text(step.recomputations[0][0].op), "0F0");
  EXPECT_EQ(step.timeline.workers[0].busy, 4);
  EXPECT_EQ(causes(step.explanation.bubbles[0]), (Causes{{"dependency", 2.25}, {"latency", 0.25}, {"sync", 0.5}}));
}

TEST(MeasuredStepTest, AllReducesGoFromTheLastLaunchToTheirEnd) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {2, 2}));
  auto step = recorded(job, {{{"0B0", 5}, {"wait for all-reduce of stage 0", 9}, {"wait for all-reduce of stage 1", 9}},
                             {{"1B0", 6}, {"wait for all-reduce of stage 0", 9}}});
  step.all_reduce_ends[0][0] = 108;
  step.all_reduce_ends[1][0] = 108.5;
  const MeasuredStep measured = measured_step(job, GroupId(0), step);
  const TimedAllReduce& sum = measured.timeline.workers[0].all_reduces.front();
  EXPECT_EQ(sum.group, ParameterGroupId(0));
  EXPECT_EQ(sum.start, 6) << "worker 1 launches it last";
  EXPECT_EQ(sum.end, 8) << "done before its wait ends";
  EXPECT_EQ(measured.launched[0].front().start, 5);
  const CostModel costs = measured_costs(job, OpTimes(2), {{measured}});
  EXPECT_EQ(costs.all_reduce->seconds[0], 2.5) << "until the last member has it";
}

TEST(MeasuredCostsTest, LatencyUsesMessagesOfWaitingReceivers) {
  const Job job = prepare_job(testing::small_options("gpt2-tiny", "1f1b", {2, 1}));
  auto ends = kOneMicroBatch;
  EXPECT_EQ(measured_costs(job, OpTimes(2), {{measured_step(job, GroupId(0), recorded(job, ends))}}).latency, 0.25);
  // worker 1 is late, so the arrival times of the messages are unknown
  ends[1]["post receive of 0F0 from worker 0"] = 9;
  for (auto& [text, end] : ends[1]) end += 10;
  ends[0]["0F0"] = 30;
  ends[0]["wait for 1B0 from worker 1"] = 30;
  EXPECT_EQ(measured_costs(job, OpTimes(2), {{measured_step(job, GroupId(0), recorded(job, ends))}}).latency, 0);
}

TEST(MeasuredCostsTest, OpsOfSlowWorkersGiveTheTimesOfHealthyOnes) {
  Job job = prepare_job(testing::small_options("gpt2-tiny", "chimera", {2, 2}));
  OpTimes times(2);
  for (const auto& ops : job.run.schedule.workers) {
    for (const Op& op : ops) times.add(op, {.wall_seconds = &ops == &job.run.schedule.workers[1] ? 3.0 : 1.0});
  }
  EXPECT_EQ(measured_op_costs(job, times, &Duration::wall_seconds).stages[0].forward, 2);
  job.factors = {1, 3};
  const CostModel costs = measured_op_costs(job, times, &Duration::wall_seconds);
  EXPECT_EQ(costs.stages[0].forward, 1);
  EXPECT_EQ(costs.stages[1].backward, 1);
  EXPECT_EQ(costs.workers, job.factors);
}

TEST(TracerTest, KeepsTheLastSteps) {
  Tracer tracer(1, 1);
  for (std::int64_t step = 0; step < 20; ++step) {
    tracer.begin_step(step);
    tracer.mark();
    tracer.mark();
  }
  ASSERT_EQ(tracer.steps().size(), Tracer::kMaxSteps);
  EXPECT_EQ(tracer.steps().back()->step, 19);
  EXPECT_EQ(tracer.steps().back()->boundaries.size(), 2U);
}

TEST(TracerTest, KeepsOneStepOfAnyLength) {
  Tracer tracer(2 * Tracer::kMaxInstructions, 1);
  tracer.begin_step(0);
  tracer.begin_step(1);
  EXPECT_EQ(tracer.steps().size(), 1U);
}

/// Trains with ranks as threads, and returns the traced steps.
std::vector<RecordedStep> trained(const Job& job, std::int64_t steps, OpTimes& op_times) {
  std::vector<RecordedStep> recorded;
  run_rank_threads(static_cast<int>(job.num_ranks()), job.rank_groups(), [&](RankId rank, Transport& transport) {
    at::set_num_threads(1);
    Trainer trainer(job, rank, transport);
    trainer.trace(true);
    const RunSummary run = trainer.run([](const StepMetrics&) {});
    auto gathered = gather_steps(job, job.options.device, rank, transport, *trainer.tracer());
    if (rank != RankId(0)) return;
    recorded = std::move(gathered);
    op_times = run.op_times;
  });
  EXPECT_EQ(recorded.size(), static_cast<std::size_t>(steps));
  return recorded;
}

struct TracedRun {
  explicit TracedRun(TrainOptions options) {
    options.updates.steps = 2;
    options.device.transport = TransportKind::Threads;  // all ranks share a clock
    job.emplace(prepare_job(options));
    steps = measured_steps(*job, trained(*job, 2, op_times));
  }
  std::optional<Job> job;
  OpTimes op_times{0};
  std::vector<std::vector<MeasuredStep>> steps;
};

TrainOptions options_of_two_groups() {
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 4});
  options.parallel.data_parallel = 2;
  options.memory.recompute = {StageRule::Full};
  return options;
}

TEST(ObservationTest, NothingRunsBeforeItsInputsOrTwoOpsAtOnce) {
  const TracedRun run(testing::small_options("gpt2-tiny", "chimera", {4, 8}));
  for (const auto& groups : run.steps) {
    const MeasuredStep& step = groups.front();
    for (const Message& message : step.explanation.messages) {
      EXPECT_GE(message.sent, step.timeline.workers[message.from.worker].ops[message.from.position].end);
      EXPECT_GE(message.arrived, message.sent);
      EXPECT_LE(message.arrived, step.timeline.workers[message.to.worker].ops[message.to.position].start);
    }
    for (std::size_t w = 0; w < 4; ++w) {
      const WorkerTimeline& worker = step.timeline.workers[w];
      ASSERT_EQ(worker.ops.size(), run.job->run.schedule.workers[w].size());
      for (std::size_t i = 1; i < worker.ops.size(); ++i) EXPECT_GE(worker.ops[i].start, worker.ops[i - 1].end);
      double idle = 0;
      for (const Bubble& bubble : step.explanation.bubbles[w]) idle += bubble.end - bubble.start;
      EXPECT_NEAR(idle, worker.idle, 1e-9) << "the causes explain all idle time";
      EXPECT_EQ(worker.all_reduces.size(), 2U);
    }
  }
}

/// Four workers of `pipelines` data-parallel groups or values of t, with one track named `track`.
void expect_tracks(const TrainOptions& options, const std::string& track, int pipelines) {
  const TracedRun run(options);
  const json events = read_json(trace_text(*run.job, run.steps))["traceEvents"];
  std::map<std::string, int> slices;  // by process and kind
  std::map<std::string, int> tracks;
  int arrows = 0;
  for (const json& event : events) {
    if (event["ph"] == "s") ++arrows;
    if (event["name"] == "thread_name" && event["pid"] == 1) ++tracks[event["args"]["name"]];
    if (event["ph"] != "X") continue;
    EXPECT_GE(event["ts"].get<double>(), 0);
    EXPECT_GE(event["dur"].get<double>(), 0);
    if (event["pid"] == 1)
      ++slices[event["args"].contains("micro_batch") ? "op" : event["name"].get<std::string>().substr(0, 9)];
    if (event["pid"] == 3) ++slices["all-reduce"];
    if (event["pid"] == 5) ++slices["transfer"];
  }
  EXPECT_EQ(tracks.size(), 8U);
  EXPECT_TRUE(tracks.contains(track));
  const int runs = 2 * pipelines;  // steps
  EXPECT_EQ(slices["op"], runs * 4 * 4 * 2);
  EXPECT_EQ(slices["recompute"], runs * 4 * 4);
  EXPECT_EQ(slices["optimizer"], runs * 4);
  EXPECT_EQ(slices["all-reduce"], runs * 4 * 2);
  EXPECT_EQ(slices["transfer"], runs * 4 * 3 * 2);
  EXPECT_EQ(arrows, slices["transfer"]);
}

TEST(ObservationTest, TheTraceHasATrackForEachRank) {
  expect_tracks(options_of_two_groups(), "group 1, worker 3", 2);
  // Each t has the ops of its worker, messages to the same t, and gradient sums with the same t.
  TrainOptions options = testing::small_options("gpt2-tiny", "chimera", {4, 4});
  options.parallel.tensor_parallel = 2;
  options.memory.recompute = {StageRule::Full};
  expect_tracks(options, "worker 3, t 1", 2);
}

TEST(ObservationTest, SimulateReadsTheMeasuredCostsOfSplitLayers) {
  TrainOptions options = testing::small_options("gpt2-tiny", "1f1b", {2, 2});
  options.parallel.tensor_parallel = 2;
  const TracedRun run(options);
  ASSERT_EQ(run.steps.front().size(), 2U);
  EXPECT_EQ(run.steps.front()[1].lane, 1);
  const CostModel costs = measured_costs(*run.job, run.op_times, run.steps);
  const CostModel read = costs_from_json(costs_to_json(costs), "op_times.json", 2);
  EXPECT_GT(read.stages[1].backward, 0);
  EXPECT_EQ(timeline_panels(run.job->run.schedule, run.steps, costs).size(), 2U);
}

TEST(ObservationTest, SimulateReadsTheMeasuredCosts) {
  const TracedRun run(options_of_two_groups());
  const CostModel measured = measured_costs(*run.job, run.op_times, run.steps);
  const CostModel read = costs_from_json(costs_to_json(measured), "op_times.json", 4);
  for (std::size_t s = 0; s < 4; ++s) {
    EXPECT_GT(read.stages[s].forward, 0);
    EXPECT_GT(read.stages[s].backward, 0);
    EXPECT_GT(read.recompute[s], 0);
    EXPECT_GT(read.optimizer[s], 0);
    EXPECT_EQ(read.stages[s].forward, measured.stages[s].forward);
    EXPECT_EQ(read.stages[s].backward, measured.stages[s].backward);
  }
  const double busiest = simulate(run.job->run.schedule, read).makespan;
  EXPECT_GT(busiest, 8 * read.stages[0].forward);
}

TEST(ObservationTest, ThePageShowsTheStepAboveItsSimulation) {
  const TracedRun run(testing::small_options("gpt2-tiny", "1f1b", {2, 2}));
  const std::string page =
      to_html(timeline_panels(run.job->run.schedule, run.steps, measured_costs(*run.job, run.op_times, run.steps)));
  const auto measured = page.find("as it ran, in seconds\"");
  EXPECT_NE(measured, std::string::npos);
  EXPECT_LT(measured, page.find("simulated with the measured op times\""));
}

}  // namespace
}  // namespace chimera
