
#include "plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>
#include <tuple>

#include "core/error.h"
#include "generate/registry.h"
#include "plan/machines.h"
#include "plan/train_flags.h"
#include "plan/worker_memory.h"

namespace chimera {
namespace {

using ::testing::HasSubstr;
using ::testing::ThrowsMessage;

constexpr double kMiB = 1 << 20;

Plan planned(const PlanProblem& problem, const PlanOptions& options = {}) {
  Predictor predictor(problem);
  return make_plan(predictor, options);
}

TEST(PlanTest, CandidatesAreAllWaysToShareTheWork) {
  PlanOptions options;
  options.schedules = {"1f1b"};
  std::set<std::tuple<std::int64_t, std::int64_t, std::int64_t, std::int64_t>> found;
  for (const Candidate& each : list_candidates(problem_of(4, 8), options))
    found.emplace(each.data_parallel, each.shape.stages, each.shape.micro_batches, each.micro_batch_size);
  EXPECT_THAT(found,
              ::testing::UnorderedElementsAre(std::tuple(4, 1, 2, 1), std::tuple(4, 1, 1, 2), std::tuple(2, 2, 4, 1),
                                              std::tuple(2, 2, 2, 2), std::tuple(2, 2, 1, 4), std::tuple(1, 4, 8, 1),
                                              std::tuple(1, 4, 4, 2), std::tuple(1, 4, 2, 4), std::tuple(1, 4, 1, 8)));
}

TEST(PlanTest, CandidatesIncludeShapesOfEverySchedule) {
  std::set<std::string> words;
  for (const Candidate& each : list_candidates(problem_of(4, 16), {})) words.insert(describe(each));
  for (const char* expected :
       {"chimera 2f 4 direct  W 1 x D 4, 16 micro-batches of 1", "chimera doubling  W 1 x D 4, 8 micro-batches of 2",
        "chimera halving  W 1 x D 4, 8 micro-batches of 2", "hanayo  W 1 x D 4, 4 micro-batches of 4",
        "interleaved-1f1b  W 2 x D 2, 2 micro-batches of 4", "dualpipe  W 1 x D 4, 16 micro-batches of 1"}) {
    EXPECT_TRUE(words.contains(expected)) << expected;
  }
  EXPECT_FALSE(words.contains("pipedream  W 1 x D 4, 16 micro-batches of 1"));  // asynchronous: planned only if named
}

TEST(PlanTest, EveryCandidateCanBeGenerated) {
  PlanOptions options;
  options.schedules = schedule_names();
  const PlanProblem problem = problem_of(8, 24);
  Predictor predictor(problem);
  for (const Candidate& each : list_candidates(problem, options))
    EXPECT_NO_THROW((void)predictor.prepare(each)) << describe(each);
}

TEST(PlanTest, WithoutCommunicationDataParallelismWins) {
  const Plan plan = planned(problem_of(4, 8));
  const auto seconds = [](const RankedCandidate& each) { return each.prediction.step_seconds; };
  const RankedCandidate& fastest = *std::ranges::min_element(plan.ranked, {}, seconds);
  EXPECT_EQ(fastest.candidate.shape.stages, 1);
  EXPECT_DOUBLE_EQ(fastest.prediction.step_seconds, 2 * 8 * 3);  // two sequences through eight layers
}

TEST(PlanTest, TheReplicaLayoutFollowsTheLinksBetweenNodes) {
  PlanProblem problem = problem_of(4, 8);
  problem.machine.workers_per_node = 2;
  PlanOptions options{.schedules = {"1f1b"}, .given = {.stages = {2}}};
  const auto chosen = [&] { return planned(problem, options).ranked.front().candidate; };
  problem.machine.all_reduce.between_nodes.beta = 1;
  EXPECT_EQ(chosen().replica_layout, ReplicaLayout::Near) << "sums stay on their nodes";
  problem.machine.all_reduce = {};
  problem.machine.point_to_point.between_nodes.alpha = 10;
  EXPECT_EQ(chosen().replica_layout, ReplicaLayout::Far) << "messages do";
  EXPECT_THAT(describe(chosen()), ::testing::EndsWith(", replicas far"));
  EXPECT_THAT(to_words(train_flags(problem, chosen())), ::testing::IsSupersetOf({"--replica-layout", "far"}));
  options.given.replica_layout = ReplicaLayout::Near;
  EXPECT_EQ(chosen().replica_layout, ReplicaLayout::Near);
}

TEST(PlanTest, TheReplicaLayoutIsNearIfItChangesNoLink) {
  for (const std::int64_t places : {1, 4}) {
    PlanProblem problem = problem_of(4, 8);
    problem.machine.workers_per_node = places;
    for (const Candidate& each : list_candidates(problem, {})) EXPECT_EQ(each.replica_layout, ReplicaLayout::Near);
  }
}

TEST(PlanTest, ExpensiveAllReducesMakeOnePipelineWin) {
  PlanProblem problem = problem_of(4, 64);
  problem.machine.all_reduce.within_node.alpha = 1000;
  PlanOptions options;
  options.schedules = {"1f1b"};
  const Plan plan = planned(problem, options);
  EXPECT_EQ(plan.ranked.front().candidate.data_parallel, 1);
  EXPECT_EQ(plan.ranked.front().candidate.shape.stages, 4);
}

TEST(PlanTest, PruningKeepsTheBest) {
  const PlanProblem problem = problem_of(8, 32);
  PlanOptions options;
  options.partition = {PartitionRule::Even};
  options.top = 0;
  const Plan all = planned(problem, options);
  options.top = 5;
  std::int64_t tried = 0;
  options.progress = [&](std::int64_t now) { EXPECT_EQ(now, ++tried); };
  const Plan pruned = planned(problem, options);
  EXPECT_GT(tried, 5);
  EXPECT_EQ(all.pruned, 0);
  EXPECT_GT(pruned.pruned, 0);
  ASSERT_EQ(pruned.ranked.size(), 5U);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_EQ(pruned.ranked[i].prediction.step_seconds, all.ranked[i].prediction.step_seconds);
  EXPECT_EQ(static_cast<std::int64_t>(all.ranked.size()) + all.too_large, all.considered);
}

/// A head that takes as long as two blocks.
PlanProblem with_a_dear_head(PlanProblem problem) {
  for (LayerTime& time : problem.machine.layers[2].times)
    time.forward = time.input_gradient = time.weight_gradient = 2 * static_cast<double>(time.micro_batch_size);
  return problem;
}

TEST(PlanTest, RankingFewerCandidatesKeepsTheirRanks) {
  PlanProblem problem = with_a_dear_head(problem_of(4, 32));
  problem.machine.all_reduce.within_node.alpha = 1000;  // makes pipelines win, so stages must balance
  PlanOptions options;
  options.top = 0;  // all
  const Plan many = planned(problem, options);
  EXPECT_EQ(many.pruned, 0);
  EXPECT_TRUE(std::ranges::any_of(
      many.ranked, [](const RankedCandidate& each) { return to_text(each.candidate.partition) != "even"; }));
  for (const std::int64_t top : {1, 5}) {
    options.top = top;
    const Plan few = planned(problem, options);
    EXPECT_GT(few.pruned, 0);
    ASSERT_EQ(few.ranked.size(), static_cast<std::size_t>(top));
    for (std::size_t i = 0; i < few.ranked.size(); ++i)
      EXPECT_EQ(few.ranked[i].prediction.step_seconds, many.ranked[i].prediction.step_seconds) << top << " " << i;
  }
}

TEST(PlanTest, AnExpensiveHeadMakesTheLastStageShort) {
  PlanProblem problem = with_a_dear_head(problem_of(2, 16));
  problem.machine.all_reduce.within_node.alpha = 1000;  // rules out data parallelism
  PlanOptions options;
  options.schedules = {"1f1b"};
  EXPECT_EQ(to_text(planned(problem, options).ranked.front().candidate.partition), "5,3");
  options.partition = {PartitionRule::Even};
  EXPECT_EQ(to_text(planned(problem, options).ranked.front().candidate.partition), "even");
  options.partition = parse_partition("6,2");
  for (const RankedCandidate& each : planned(problem, options).ranked) {
    EXPECT_EQ(to_text(each.candidate.partition), "6,2");
    EXPECT_EQ(each.candidate.shape.stages, 2);
  }
}

TEST(PlanTest, GivesUpIfPendingMessagesExceedTheMemoryByAByte) {
  PlanProblem problem = problem_of(4, 32);
  problem.machine = round_machine();     // messages arrive long before their use
  problem.machine.workers_per_node = 1;  // all links are equal
  Candidate candidate{.schedule = "1f1b", .shape = {.stages = 4, .micro_batches = 8}, .micro_batch_size = 4};
  for (std::int64_t stage = 0; stage < 4; ++stage) candidate.recompute.insert(StageId(stage));
  Predictor predictor(problem);
  const PlannedSchedule prepared = predictor.prepare(candidate);
  const double peak = predictor.predict(prepared, candidate).peak_memory_bytes;
  const auto by_order = peaks_by_order(*prepared.schedule, prepared.model, candidate.recompute);
  ASSERT_GT(peak, *std::ranges::max_element(by_order)) << "else the order of ops would tell";
  problem.memory_bytes = peak - 1;
  PlanOptions options;
  options.schedules = {"1f1b"};
  options.top = 0;
  options.recompute_all = true;  // blocks need less
  for (const RankedCandidate& each : planned(problem, options).ranked) {
    EXPECT_FALSE(each.candidate.shape.stages == 4 && each.candidate.micro_batch_size == 4);
    EXPECT_LE(each.prediction.peak_memory_bytes, problem.memory_bytes);
  }
}

TEST(PlanTest, RecomputesOnlyAsMemoryRequires) {
  PlanProblem problem = problem_of(4, 32);
  PlanOptions options;
  options.schedules = {"1f1b"};
  options.top = 0;
  Candidate candidate{.schedule = "1f1b", .shape = {.stages = 4, .micro_batches = 8}, .micro_batch_size = 4};
  Predictor predictor(problem);
  const double roomy = predictor.predict(candidate).peak_memory_bytes;
  problem.memory_bytes = roomy - kMiB;
  for (const RankedCandidate& each : planned(problem, options).ranked) {
    if (each.candidate.shape.stages != 4 || each.candidate.micro_batch_size != 4) continue;
    // The first worker has most micro-batches in flight and must recompute; the last has one and need not.
    ASSERT_EQ(each.candidate.blocks.counts.size(), 4U);
    EXPECT_GT(each.candidate.blocks.counts[0].all(), 0);
    EXPECT_EQ(each.candidate.blocks.counts[3].all(), 0);
    EXPECT_LE(each.prediction.peak_memory_bytes, problem.memory_bytes);
    return;
  }
  FAIL() << "the candidate does not fit";
}

TEST(PlanTest, OffloadsOnlyAsMemoryRequires) {
  PlanProblem problem = problem_of(4, 32);
  problem.machine.host_bandwidth = 1e12;
  PlanOptions options;
  options.schedules = {"1f1b"};
  options.given = {.stages = {4}, .micro_batch_sizes = {4}};
  options.partition = {PartitionRule::Even};
  options.recompute = {StageRule::None};
  const double roomy = planned(problem, options).ranked.front().prediction.peak_memory_bytes;
  problem.memory_bytes = roomy - kMiB;
  EXPECT_THROW((void)planned(problem, options), ConfigError);
  options.offload = {StageRule::Auto};
  const RankedCandidate fitting = planned(problem, options).ranked.front();
  EXPECT_TRUE(fitting.candidate.offload.contains(StageId(0)));
  EXPECT_FALSE(fitting.candidate.offload.contains(StageId(3)));
  EXPECT_EQ(to_text(offload_choice(fitting.candidate)), "full:1,0,0,0") << "one of two blocks";
  EXPECT_LE(fitting.prediction.peak_memory_bytes, problem.memory_bytes);
  EXPECT_TRUE(train_flags(problem, fitting.candidate).contains("offload"));
  // Beside recomputation the faster one wins: copies behind the ops, unless they are slow.
  options.recompute = {StageRule::Auto};
  const Plan both = planned(problem, options);
  EXPECT_TRUE(std::ranges::any_of(both.ranked, [&](const RankedCandidate& each) {
    return !each.candidate.offload.empty() &&
           each.prediction.step_seconds <= both.ranked.front().prediction.step_seconds;
  })) << "ties go to the least memory";
  problem.machine.host_bandwidth = 1e3;
  const Candidate recomputing = planned(problem, options).ranked.front().candidate;
  EXPECT_TRUE(recomputing.offload.empty());
  EXPECT_NE(recompute_choice(recomputing).rule, StageRule::None);
}

/// Smaller micro-batches take 1 % longer, and less memory.
TEST(PlanTest, ATieGoesToTheMostRoom) {
  PlanProblem problem = problem_of(2, 8);
  PlanOptions options{.schedules = {"1f1b"}, .given = {.data_parallel = {2}, .micro_batch_sizes = {2, 4}}};
  const auto sizes = [&](double longer) {
    for (LayerTime& time : problem.machine.layers[1].times) {
      const auto size = static_cast<double>(time.micro_batch_size);
      time.forward = time.input_gradient = time.weight_gradient = longer + (1 - longer) * size;
    }
    const Plan plan = planned(problem, options);
    std::vector<std::int64_t> found;
    for (const RankedCandidate& each : plan.ranked) found.push_back(each.candidate.micro_batch_size);
    EXPECT_EQ(plan.tied, longer < 0.1 ? 2 : 1);
    options.top = 1;
    EXPECT_EQ(planned(problem, options).ranked.front().candidate.micro_batch_size, found.front());
    options.top = 10;
    return found;
  };
  EXPECT_EQ(sizes(0.04), (std::vector<std::int64_t>{2, 4})) << "1 % is a tie";
  EXPECT_EQ(sizes(0.4), (std::vector<std::int64_t>{4, 2})) << "14 % is none";
}

TEST(PlanTest, ShardsTheOptimizerIfMemoryIsShort) {
  PlanProblem problem = problem_of(4, 8);
  PlanOptions options{
      .schedules = {"1f1b"}, .given = {.stages = {2}}, .recompute = {StageRule::None}, .may_shard = true};
  const auto shards = [&] { return planned(problem, options).ranked.front().candidate.shard_optimizer; };
  EXPECT_FALSE(shards());
  problem.memory_bytes = planned(problem, options).ranked.front().prediction.peak_memory_bytes - kMiB;
  EXPECT_TRUE(shards());
  options.may_shard = false;
  EXPECT_THROW((void)shards(), ConfigError);
}

TEST(PlanTest, TriesTheGivenChunks) {
  PlanOptions options{.schedules = {"1f1b", "interleaved-1f1b"}, .given = {.stages = {2}, .chunks = {2, 4}}};
  std::set<std::int64_t> chunks;
  for (const Candidate& each : list_candidates(problem_of(2, 8), options)) {
    EXPECT_EQ(each.schedule, "interleaved-1f1b") << "1f1b has no chunks";
    chunks.insert(each.shape.chunks);
  }
  EXPECT_EQ(chunks, (std::set<std::int64_t>{2, 4}));
}

TEST(PlanTest, GivenParametersAreNotSearched) {
  const PlanProblem problem = problem_of(8, 32);
  PlanOptions options;
  options.given = {.stages = {2, 4}, .data_parallel = {2}, .micro_batch_sizes = {1, 2}, .pipelines = {2}};
  std::set<std::string> schedules;
  for (const Candidate& each : list_candidates(problem, options)) {
    schedules.insert(each.schedule);
    EXPECT_EQ(each.shape.stages, 4) << "W x D = 8 leaves no other";
    EXPECT_EQ(each.shape.pipelines, 2);
    EXPECT_LE(each.micro_batch_size, 2);
  }
  EXPECT_THAT(schedules, ::testing::ElementsAre("chimera", "chimera-rotated", "chimera-zb"));
  options.given = {.stages = {3}};
  EXPECT_THAT([&] { (void)list_candidates(problem, options); },
              ThrowsMessage<ConfigError>(::testing::AllOf(HasSubstr("--stages 3: no configuration of 8 workers"),
                                                          HasSubstr("possible values such as"))));
}

TEST(PlanTest, GivenRecomputationIsKept) {
  const PlanProblem problem = problem_of(4, 16);
  const auto recomputed = [&](const char* choice) {
    PlanOptions options{
        .schedules = {"1f1b"}, .given = {.stages = {4}}, .recompute = parse_stages(kRecomputeFlag, choice)};
    options.partition = {PartitionRule::Even};
    return planned(problem, options).ranked.front().candidate.recompute;
  };
  EXPECT_TRUE(recomputed("auto").empty());
  EXPECT_EQ(recomputed("full").size(), 4U);
  EXPECT_EQ(recomputed("1,2"), (std::set{StageId(1), StageId(2)}));
}

TEST(PlanTest, WithoutRecomputationLessFits) {
  PlanProblem problem = problem_of(4, 32);
  PlanOptions options{.schedules = {"1f1b"}, .given = {.stages = {4}, .micro_batch_sizes = {4}}};
  options.partition = {PartitionRule::Even};
  problem.memory_bytes = planned(problem, options).ranked.front().prediction.peak_memory_bytes - kMiB;
  EXPECT_NE(recompute_choice(planned(problem, options).ranked.front().candidate).rule, StageRule::None);
  options.recompute = {StageRule::None};
  EXPECT_THAT([&] { (void)planned(problem, options); }, ThrowsMessage<ConfigError>(HasSubstr("recomputing none")));
}

TEST(PlanTest, LessMemoryTakesMoreTime) {
  PlanProblem problem = problem_of(4, 16);
  problem.machine.all_reduce.within_node.alpha = 10;
  PlanOptions options;
  options.partition = {PartitionRule::Even};
  const Predictor predictor(problem);
  const auto rows = plan_pareto_front(predictor, options);
  ASSERT_GT(rows.size(), 3U);
  EXPECT_EQ(rows.front().prediction.step_seconds, planned(problem, options).ranked.front().prediction.step_seconds);
  for (std::size_t i = 1; i < rows.size(); ++i) {
    EXPECT_GE(rows[i].prediction.step_seconds, rows[i - 1].prediction.step_seconds);
    EXPECT_LE(rows[i].prediction.peak_memory_bytes, 0.95 * rows[i - 1].prediction.peak_memory_bytes);
  }
}

TEST(PlanTest, NamesTheLeastSufficientMemory) {
  PlanProblem problem = problem_of(4, 8);
  problem.memory_bytes = kMiB;
  Predictor predictor(problem);
  EXPECT_THAT([&] { (void)make_plan(predictor, {}); },
              ThrowsMessage<ConfigError>(
                  ::testing::AllOf(HasSubstr("gpt2-mini does not fit on 4 workers"), HasSubstr("it needs at least"))));
}

TEST(PlanTest, SlicesAreSearchedIfAsked) {
  PlanProblem problem = problem_of(4, 8);
  problem.workload.sequence = 1024;
  PlanOptions options{.schedules = {"1f1b", "interleaved-1f1b"}, .given = {.stages = {4}}};
  const auto counts = [&] {
    std::set<std::int64_t> found;
    for (const Candidate& each : list_candidates(problem, options)) found.insert(each.shape.slices);
    return found;
  };
  EXPECT_EQ(counts(), (std::set<std::int64_t>{1}));
  options.given.slices = {};
  EXPECT_EQ(counts(), (std::set<std::int64_t>{1, 2, 4, 8})) << "of 128 tokens and more";
  const auto chosen = [&] { return planned(problem, options).ranked.front().candidate.shape.slices; };
  EXPECT_EQ(chosen(), 8) << "if slices cost nothing";
  problem.machine.op_overhead = 1000;
  EXPECT_EQ(chosen(), 1);
  options.given.slices = {3};
  for (const Candidate& each : list_candidates(problem, options)) {
    EXPECT_EQ(each.schedule, "1f1b") << "the other one has no slices";
    EXPECT_EQ(each.shape.slices, 3);
  }
  options.given.slices = {1025};
  EXPECT_THAT([&] { (void)list_candidates(problem, options); },
              ThrowsMessage<ConfigError>(HasSubstr("--slices 1025: a sequence has only 1024 tokens")));
  problem.model = find_model("bert-48");
  options.given.slices = {2};
  EXPECT_THAT([&] { (void)list_candidates(problem, options); },
              ThrowsMessage<ConfigError>(HasSubstr("--slices 2: model bert-48 attends to later tokens")));
  options.given.slices = {};
  EXPECT_EQ(counts(), (std::set<std::int64_t>{1}));
}

TEST(PlanTest, RefusesIndivisibleWork) {
  const auto refuses = [](const PlanProblem& problem, const PlanOptions& options, const std::string& words) {
    EXPECT_THAT([&] { (void)list_candidates(problem, options); }, ThrowsMessage<ConfigError>(HasSubstr(words)));
  };
  refuses(problem_of(31, 32), {}, "31 workers: no W x D = 31 has W dividing the mini-batch of 32 and D at most the 8");
  refuses(problem_of(31, 32), {}, "28 workers would do");
  PlanOptions chimera;
  chimera.schedules = {"chimera"};
  refuses(problem_of(7, 1), chimera, "none of the schedules chimera takes any W x D = 7");
  PlanOptions unknown;
  unknown.schedules = {"chimra"};
  refuses(problem_of(4, 8), unknown, "did you mean 'chimera'?");
}

TEST(PaperRuleTest, TakesTheLargestPowerOfTwoThatFitsWithDInFlight) {
  PlanProblem problem = problem_of(4, 64);
  Candidate unit{.schedule = "chimera", .shape = {.stages = 4, .micro_batches = 4}, .micro_batch_size = 8};
  Predictor probe(problem);
  const PlannedSchedule planned_unit = probe.prepare(unit);
  problem.memory_bytes = std::ranges::max(peaks_by_order(*planned_unit.schedule, planned_unit.model, {}));
  Predictor predictor(problem);
  const Plan plan = plan_by_paper_rule(predictor);
  ASSERT_EQ(plan.considered, 2);  // D = 2 and D = 4
  for (const RankedCandidate& each : plan.ranked) {
    EXPECT_EQ(each.candidate.schedule, "chimera");
    EXPECT_TRUE(each.candidate.recompute.empty());
    if (each.candidate.shape.stages == 4) EXPECT_EQ(each.candidate.micro_batch_size, 8);
    EXPECT_EQ(each.candidate.micro_batch_size * each.candidate.shape.micro_batches * each.candidate.data_parallel, 64);
  }
  EXPECT_LE(plan.ranked[0].prediction.paper->seconds, plan.ranked[1].prediction.paper->seconds);
}

TEST(PaperRuleTest, RecomputesOnlyIfOneSequenceDoesNotFit) {
  PlanProblem problem = problem_of(4, 64);
  Candidate unit{.schedule = "chimera", .shape = {.stages = 4, .micro_batches = 4}, .micro_batch_size = 1};
  Predictor probe(problem);
  const PlannedSchedule planned_unit = probe.prepare(unit);
  problem.memory_bytes = std::ranges::max(peaks_by_order(*planned_unit.schedule, planned_unit.model, {})) - 1;
  Predictor predictor(problem);
  const Plan plan = plan_by_paper_rule(predictor);
  for (const RankedCandidate& each : plan.ranked) {
    if (each.candidate.shape.stages == 4) EXPECT_EQ(each.candidate.recompute.size(), 4U);
  }
}

TEST(PaperRuleTest, NeedsAnEvenDepth) {
  Predictor predictor(problem_of(7, 7));
  EXPECT_THAT(
      [&] { (void)plan_by_paper_rule(predictor); },
      ThrowsMessage<ConfigError>(HasSubstr("the paper's rule needs W x D = 7 with a D of schedule chimera (D even,")));
}

}  // namespace
}  // namespace chimera
