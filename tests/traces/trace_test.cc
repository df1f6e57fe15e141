#include "traces/trace.h"
#include "core/files.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "core/error.h"
#include "generate/registry.h"
#include "render/perfetto.h"
#include "schedule/schedule_csv.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"
#include "support/message_of.h"
#include "support/paths.h"
#include "traces/torch_trace.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using testing::read_texts;
using ::testing::SizeIs;
using testing::torch_traces;
using testing::uneven_costs;

Schedule torch_schedule(const std::string& name) {
  return schedule_from_csv(read_whole(testing::source_path("/tests/fixtures/torch_csv/" + name + ".csv")), name)
      .schedule;
}

Schedule generated(const std::string& name, std::int64_t workers, std::int64_t micro_batches) {
  const Generator& generator = find_generator(name);
  return generator.generate(default_shape(generator, workers, micro_batches));
}

std::string refusal(std::vector<RankTrace> ranks, const TraceSteps& steps = {}) {
  return testing::message_of([&] { (void)join_ranks(std::move(ranks), steps); }, "accepted");
}

class TorchScheduleTest : public ::testing::TestWithParam<const char*> {};

TEST_P(TorchScheduleTest, IsReadExactlyFromClocksThatDiffer) {
  const Schedule schedule = torch_schedule(GetParam());
  const CostModel costs = uneven_costs(schedule.stages);
  const Timeline timeline = simulate(schedule, costs);
  auto ranks = read_texts(torch_traces(schedule, costs, {.clocks = {0, 0.25, -0.125, 3}}));
  std::ranges::reverse(ranks);
  const Trace trace = join_ranks(std::move(ranks));
  EXPECT_EQ(trace.schedule.workers, schedule.workers);
  EXPECT_EQ(trace.schedule.placement, schedule.placement);
  ASSERT_THAT(trace.steps, SizeIs(3));
  EXPECT_NEAR(trace.step_seconds(), timeline.makespan + 0.005, 1e-3);
  EXPECT_THAT(trace.notes, ElementsAre(HasSubstr("clocks of the ranks differ by up to")));
  const CostModel read = trace_costs(trace);
  for (std::size_t s = 0; s < costs.stages.size(); ++s) {
    EXPECT_NEAR(read.stages[s].forward, costs.stages[s].forward, 2e-4) << s;
    EXPECT_NEAR(read.stages[s].backward, costs.stages[s].backward, 4e-4) << s;
  }
  EXPECT_NEAR(simulate(trace.schedule, read).makespan, trace.step_seconds(), 0.01 * trace.step_seconds());
}

INSTANTIATE_TEST_SUITE_P(, TorchScheduleTest,
                         ::testing::Values("gpipe", "looped_bfs", "interleaved_1f1b", "interleaved_zero_bubble", "zbv",
                                           "dualpipev"));

TEST(TraceTest, NamesTheGenerator) {
  for (const auto& [file, name] :
       {std::pair{"gpipe", "gpipe"}, {"interleaved_1f1b", "interleaved-1f1b"}, {"zbv", "zb-v"}}) {
    const Schedule schedule = torch_schedule(file);
    const Trace trace = join_ranks(read_texts(torch_traces(schedule, uneven_costs(schedule.stages))));
    EXPECT_TRUE(trace.is_known) << file;
    EXPECT_EQ(trace.schedule.name, name);
  }
  Schedule own = generated("1f1b", 2, 4);
  std::swap(own.workers[1][1], own.workers[1][2]);
  const Trace trace = join_ranks(read_texts(torch_traces(own, uneven_costs(2))));
  EXPECT_FALSE(trace.is_known);
  EXPECT_EQ(trace.schedule.name, "own order");
}

TEST(TraceTest, PartsOfAStepAddUpToItsTime) {
  const Schedule schedule = generated("interleaved-1f1b", 2, 4);
  const Trace trace = join_ranks(read_texts(torch_traces(schedule, uneven_costs(4))));
  for (const TraceStep& step : trace.steps) {
    for (const WorkerParts& parts : step.parts) {
      double sum = parts.late + parts.transit + parts.messages + parts.sums + parts.gathers + parts.optimizer +
                   parts.ends + parts.host;
      for (const double seconds : parts.ops) sum += seconds;
      EXPECT_NEAR(sum, step.seconds, 1e-6);
    }
  }
  EXPECT_GT(trace.steps[0].parts[0].late, 0.01);
  EXPECT_NEAR(trace.steps[0].parts[0].optimizer, 0.0025, 1e-6);
  ASSERT_FALSE(trace.steps[0].late.empty());
  for (const LateOp& late : trace.steps[0].late) EXPECT_NE(late.op.worker, late.waits_for.worker);
}

TEST(TraceTest, WithoutMarksTheFirstOperatorEndsTheWait) {
  const Schedule schedule = generated("1f1b", 2, 4);
  const CostModel costs = uneven_costs(2);
  const Trace trace = join_ranks(read_texts(torch_traces(schedule, costs, {.marks_waits = false})));
  EXPECT_NEAR(trace_costs(trace).stages[1].forward, costs.stages[1].forward, 2e-4);
}

TEST(TraceTest, WeightGradientsAreAFractionOfTheOperatorsOfBackwards) {
  const Schedule schedule = generated("1f1b", 2, 4);
  auto ranks = read_texts(torch_traces(schedule, uneven_costs(2)));
  const Trace trace = join_ranks(ranks);
  ASSERT_TRUE(trace.weight_share);
  EXPECT_NEAR(*trace.weight_share, 0.4, 1e-3);  // A fifth for half of the products, a fifth for accumulation
  StageCosts stage = trace_costs(trace).stages[1];
  EXPECT_NEAR(stage.weight_gradient, 0.4 * stage.backward, 1e-4);
  const StageCosts first = trace_costs(trace).stages[0];  // Needs no gradient of its input
  EXPECT_EQ(first.input_gradient, 0);
  EXPECT_EQ(first.weight_gradient, first.backward);
  for (RankTrace& rank : ranks) {
    for (TraceRange& range : rank.ranges) range.covered /= 2;
  }
  stage = trace_costs(join_ranks(ranks)).stages[1];  // Half of a backward is the host's, and needed by both halves
  EXPECT_NEAR(stage.weight_gradient, (0.5 + 0.4 / 2) * stage.backward, 4e-4);
  EXPECT_NEAR(stage.input_gradient, (0.5 + 0.6 / 2) * stage.backward, 4e-4);
}

TEST(TraceTest, CostsAreMeansOfUsualSteps) {
  const Schedule schedule = generated("1f1b", 2, 4);
  CostModel costs = uneven_costs(2);
  costs.micro_batches = {1, 1, 1, 2};  // The median op takes 1
  Trace trace = join_ranks(read_texts(torch_traces(schedule, costs, {.steps = 5})));
  trace.steps[1].seconds = 1;
  for (auto& kinds : trace.steps[1].costs.ops) kinds.fill(1);
  const CostModel read = trace_costs(trace);
  EXPECT_NEAR(read.stages[0].forward, 1.25 * costs.stages[0].forward, 2e-4);
  EXPECT_NEAR(read.stages[1].backward, 1.25 * costs.stages[1].backward, 4e-4);
  for (const double seconds : read.optimizer) EXPECT_NEAR(seconds, 0.005, 1e-4);
}

TEST(TraceTest, WeightGradientsOfTorchAreABackwardForEachWeight) {
  auto ranks = read_texts(torch_traces(generated("1f1b", 2, 4), uneven_costs(2)));
  const StageCosts before = trace_costs(join_ranks(ranks)).stages[1];
  for (TraceRange& range : ranks[1].ranges) {
    EXPECT_EQ(range.weight_groups, range.kind == RangeKind::Op && range.op.kind == OpKind::Backward ? 1 : 0);
    range.weight_groups *= 8;
    if (range.op.kind == OpKind::Backward) range.first_operator += 0.0001;  // No backward of the last stage waits
  }
  const StageCosts after = trace_costs(join_ranks(ranks)).stages[1];
  EXPECT_NEAR(after.weight_gradient, before.weight_gradient + 0.0008, 1e-5);
  EXPECT_EQ(after.input_gradient, before.input_gradient);
}

TEST(TraceTest, StartsOfMessagesArePartOfTheirOps) {
  auto ranks = read_texts(torch_traces(generated("1f1b", 2, 4), uneven_costs(2)));
  const CostModel before = trace_costs(join_ranks(ranks));
  std::vector<TraceRange>& ranges = ranks[0].ranges;  // F0, F1, B0, ...: B0 waits
  for (std::size_t i = 2; i < ranges.size(); ++i) {
    TraceRange& range = ranges[i];
    if (range.op.kind != OpKind::Backward || range.op.micro_batch != MicroBatchId(0)) continue;
    TraceRange send{.kind = RangeKind::Message, .op = ranges[i - 1].op, .start = range.start, .sends = true};
    range.start = send.end = send.start + 0.002;
    ranges.insert(ranges.begin() + static_cast<std::ptrdiff_t>(i++), send);
  }
  const CostModel after = trace_costs(join_ranks(ranks));
  EXPECT_FALSE(before.links);
  ASSERT_TRUE(after.links);
  EXPECT_NEAR(after.links->copies.at(0), 0.002, 1e-6);
  // One of four forwards has a send of 2 ms. The simulator adds one to each.
  EXPECT_NEAR(after.stages[0].forward, before.stages[0].forward + 0.0005 - 0.002, 1e-5);
}

TEST(TraceTest, DropsAFirstStepThatIsCut) {
  for (const char* name : {"1f1b", "interleaved-zb"}) {
    const Schedule schedule = generated(name, 2, 4);
    const auto texts = torch_traces(schedule, uneven_costs(schedule.stages), {.steps = 4, .cut = 3});
    const Trace trace = join_ranks(read_texts(texts));
    EXPECT_THAT(trace.steps, SizeIs(3)) << name;
    EXPECT_EQ(trace.schedule.workers, schedule.workers);
  }
}

TEST(TraceTest, ReadsTheChosenSteps) {
  const auto texts = torch_traces(generated("1f1b", 2, 4), uneven_costs(2), {.steps = 5});
  EXPECT_THAT(join_ranks(read_texts(texts), {2, 3}).steps, SizeIs(2));
  EXPECT_THAT(join_ranks(read_texts(texts), {4, 9}).steps, SizeIs(2));
  EXPECT_EQ(refusal(read_texts(texts), {6, 7}), "--steps 6-7: the traces have steps 1 to 5");
  EXPECT_EQ(refusal(read_texts(texts), {3, 2}), "--steps 3-2: the traces have steps 1 to 5");
}

TEST(TraceTest, ChoosesOnePipelineOfSeveralAndComparesTheOthers) {
  const Schedule schedule = generated("1f1b", 2, 4);
  const CostModel costs = uneven_costs(2);
  auto texts = torch_traces(schedule, costs, {.rank_stride = 2, .world_size = 4});
  for (auto& text :
       torch_traces(schedule, costs, {.first_rank = 1, .rank_stride = 2, .world_size = 4, .slowdown = 1.5}))
    texts.push_back(std::move(text));
  const Trace trace = join_ranks(read_texts(texts));
  EXPECT_THAT(trace.ranks, ElementsAre(0, 2));
  EXPECT_EQ(trace.data_parallel, 2);
  ASSERT_THAT(trace.peers, SizeIs(2));
  EXPECT_NEAR(trace.peers[0].second, 1.5, 1e-3);
  EXPECT_THAT(trace.notes,
              ElementsAre(HasSubstr("4 ranks are traced; the times are those of the pipeline of ranks 0, 2")));
}

TEST(TraceTest, KernelsGiveTheTimesOfADevice) {
  const Schedule schedule = generated("interleaved-1f1b", 2, 4);
  const CostModel costs = uneven_costs(4);
  for (const bool annotates : {false, true}) {
    const auto texts = torch_traces(schedule, costs, {.on_device = true, .annotates_device = annotates});
    const Trace trace = join_ranks(read_texts(texts));
    EXPECT_TRUE(trace.on_device);
    EXPECT_EQ(trace.schedule.workers, schedule.workers);
    const CostModel read = trace_costs(trace);
    EXPECT_NEAR(read.stages[2].backward, costs.stages[2].backward, 4e-4);
    EXPECT_NEAR(simulate(trace.schedule, read).makespan, trace.step_seconds(), 0.01 * trace.step_seconds());
    double ops = 0;
    for (const double seconds : trace.steps[0].parts[0].ops) ops += seconds;
    EXPECT_NEAR(trace.steps[0].parts[0].inside, annotates ? 0 : ops / 10, 1e-5);
  }
}

TEST(TraceTest, ReadsOwnTraces) {
  for (const char* name : {"chimera", "zb-v", "1f1b"}) {
    const Schedule schedule = generated(name, 4, 8);
    const CostModel costs = CostModel::uniform(schedule, {1, 2, 1, 1}, 0.1);
    const Timeline timeline = simulate(schedule, costs);
    const std::string text = to_perfetto(schedule, timeline, explain(schedule, costs, timeline));
    const Trace trace = join_ranks(read_trace_text(text, "trace.json"));
    EXPECT_EQ(without_pairs(trace.schedule).workers, without_pairs(schedule).workers) << name;
    EXPECT_EQ(trace.schedule.placement, schedule.placement);
    EXPECT_NEAR(trace.step_seconds(), timeline.makespan / 1000, 1e-6);  // A unit is a millisecond
  }
}

TEST(TraceTest, RefusesRanksThatAreNoPipeline) {
  const auto texts = torch_traces(generated("1f1b", 4, 8), uneven_costs(4));
  const auto some = [&](std::initializer_list<std::size_t> chosen) {
    std::vector<std::string> list;
    for (const std::size_t i : chosen) list.push_back(texts[i]);
    return read_texts(list);
  };
  EXPECT_THAT(refusal(some({0, 2, 3})), HasSubstr("no trace has ops of stage 1"));
  EXPECT_THAT(refusal(some({0, 1, 2})), HasSubstr("give the files of all 4 ranks"));
  EXPECT_THAT(refusal(some({0, 1, 2, 3, 2})), HasSubstr("rank4.json: rank 2, like rank2.json"));
  auto other = read_texts(torch_traces(generated("1f1b", 2, 4), uneven_costs(2)));
  auto mixed = some({0, 2, 3});
  mixed.push_back(std::move(other[1]));
  EXPECT_THAT(refusal(std::move(mixed)), HasSubstr("a run of 2 ranks, but rank0.json is of a run of 4 ranks"));
  auto later = some({0, 1, 2, 3});
  later[3].origin += std::int64_t{7'200'000'000'000};
  EXPECT_THAT(refusal(std::move(later)), HasSubstr("begins 7200 s apart from rank0.json"));
}

TEST(TraceTest, RefusesOpsThatFormNoSchedule) {
  auto texts = torch_traces(generated("1f1b", 2, 4), uneven_costs(2));
  auto changed = read_texts(texts);
  std::swap(changed[1].ranges[10], changed[1].ranges[12]);
  EXPECT_THAT(refusal(std::move(changed)), HasSubstr("rank1.json: "));
  auto missing = read_texts(texts);
  for (RankTrace& rank : missing)
    std::erase_if(rank.ranges, [](const TraceRange& r) {
      return r.op.micro_batch == MicroBatchId(2) && r.op.kind == OpKind::Backward;
    });
  EXPECT_THAT(refusal(std::move(missing)), HasSubstr("the traces hold no complete schedule"));
}

TEST(TraceTest, FindsFilesInFoldersInNaturalOrder) {
  namespace fs = std::filesystem;
  const fs::path folder = fs::path(::testing::TempDir()) / "profile_trace";
  fs::remove_all(folder);
  const auto texts = torch_traces(generated("1f1b", 2, 4), uneven_costs(2));
  for (const char* iteration : {"iteration_9", "iteration_10"}) {
    fs::create_directories(folder / iteration);
    for (std::size_t i = 0; i < texts.size(); ++i)
      std::ofstream(folder / iteration / ("rank" + std::to_string(i) + "_trace.json")) << texts[i];
  }
  std::ofstream(folder / "iteration_10" / "settings.json") << "{}";
  EXPECT_THAT(find_trace_files({folder.string()}),
              ElementsAre(HasSubstr("iteration_10/rank0_trace.json"), HasSubstr("iteration_10/rank1_trace.json")));
  EXPECT_EQ(read_traces({folder.string()}).schedule.name, "1f1b");
  EXPECT_THROW((void)read_traces({(folder / "iteration_11").string()}), ConfigError);
  fs::remove_all(folder);
  fs::create_directories(folder);
  EXPECT_THAT(find_trace_files({folder.string()}), IsEmpty());
}

}  // namespace
}  // namespace chimera
