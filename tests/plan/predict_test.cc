
#include "plan/predict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "generate/registry.h"
#include "model_config/matrices.h"
#include "plan/compare_models.h"
#include "plan/machines.h"
#include "plan/train_flags.h"
#include "plan/worker_memory.h"
#include "simulate/cost_table.h"
#include "simulate/explain.h"
#include "simulate/simulate.h"

namespace chimera {
namespace {

/// gpt2-mini's 8 layers on the machine of tests/plan/machines.h: forward 2 + b, input gradient b, weight gradient 2b.
PlanProblem round_problem(std::int64_t workers, std::int64_t mini_batch) {
  PlanProblem problem;
  problem.model = find_model("gpt2-mini");
  problem.machine = round_machine();
  problem.machine.cores = 0;
  problem.workers = workers;
  problem.mini_batch = mini_batch;
  problem.memory_bytes = 1e12;
  return problem;
}

Candidate two_stages(const std::string& schedule, std::int64_t count, std::int64_t size, std::int64_t groups = 1) {
  return {.schedule = schedule,
          .shape = {.stages = 2, .micro_batches = count},
          .data_parallel = groups,
          .micro_batch_size = size};
}

/// Messages, all-reduces and updates take no time.
PlanProblem with_free_links(PlanProblem problem) {
  problem.machine.point_to_point = {};
  problem.machine.all_reduce = {};
  problem.machine.optimizer_seconds = 0;
  return problem;
}

StageModel model_of(const PlanProblem& problem, const Candidate& candidate) {
  return Predictor(problem).prepare(candidate).model;
}

TEST(PredictTest, StagesAddUpTheirLayers) {
  Predictor predictor(round_problem(2, 4));
  const StageModel model = predictor.prepare(two_stages("1f1b", 2, 2)).model;
  // Stage 0: embedding and four blocks of 2 + 2 seconds; stage 1: four blocks and the head. Each op has an overhead of
  // 10.
  ASSERT_EQ(model.costs.stages.size(), 2U);
  for (const StageCosts& stage : model.costs.stages) {
    EXPECT_DOUBLE_EQ(stage.forward, 5 * 4 + 10);
    EXPECT_DOUBLE_EQ(stage.input_gradient, 5 * 2 + 10);
    EXPECT_DOUBLE_EQ(stage.weight_gradient, 5 * 4 + 10);
    EXPECT_DOUBLE_EQ(stage.backward, 5 * (2 + 4) + 10);
  }
  EXPECT_DOUBLE_EQ(model.step_seconds, 11);
}

TEST(PredictTest, SlicesTakeEqualTimesAndEachAnOverhead) {
  const PlanProblem problem = round_problem(2, 4);
  Candidate candidate = two_stages("1f1b", 2, 2);
  candidate.shape.slices = 2;
  const PlannedSchedule planned = Predictor(problem).prepare(candidate);
  const CostTable table(*planned.schedule, planned.model.costs);
  const auto forward = [&](std::int16_t slice) {
    return table.duration({.micro_batch = MicroBatchId(0), .slice = slice});
  };
  EXPECT_NEAR(forward(0) + forward(1), 2 * (5 * (2 + 1) + 10), 1e-9);  // a sequence's tokens each
  EXPECT_NEAR(forward(0), forward(1), 0.1 * forward(1)) << "but for whole tiles of tokens";
  // Of a block's FLOPs, L / (6 H + L) are attention's in a forward, and twice as many in an input gradient.
  PlanProblem linear = problem_of(2, 4);
  const double L = 128;
  const double H = 224;
  const double share = (L / (6 * H + L) + 2 * L / (6 * H + 2 * L)) / 3;
  EXPECT_NEAR(attention_time_share(linear, 2), share, 1e-12);
  linear.machine.memory_bandwidth = 1e9;
  linear.machine.score_traffic = 40;
  EXPECT_GT(attention_time_share(linear, 2), share) << "scores move through memory";
  EXPECT_LT(attention_time_share(linear, 2), 1);
}

TEST(PredictTest, SlicesHoldLess) {
  PlanProblem problem = problem_of(4, 8);
  problem.workload.sequence = 1024;
  Predictor predictor(problem);
  Candidate candidate{.schedule = "1f1b", .shape = {.stages = 4, .micro_batches = 8}, .micro_batch_size = 1};
  const Prediction whole = predictor.predict(candidate);
  candidate.shape.slices = 4;
  const PlannedSchedule planned = predictor.prepare(candidate);
  const Prediction sliced = predictor.predict(planned, candidate);
  EXPECT_LT(sliced.step_seconds, whole.step_seconds);
  EXPECT_LT(sliced.peak_memory_bytes, 0.8 * whole.peak_memory_bytes);
  const std::vector<double> by_order = peaks_by_order(*planned.schedule, planned.model, {});
  EXPECT_LE(sliced.peak_memory_bytes, *std::ranges::max_element(by_order) + 1);
  // Two of two blocks of 1024 tokens, float32, and as many gradients
  EXPECT_EQ(planned.model.costs.memory[1].keys_and_values, 2 * 2 * 2 * 4.0 * 1024 * 224);
}

TEST(PredictTest, HalvesTakeTheTimeOfHalfMicroBatches) {
  Predictor predictor(round_problem(2, 16));
  Candidate halving = two_stages("chimera", 4, 4);
  halving.shape.scale = ScaleMethod::Halving;
  const PlannedSchedule planned = predictor.prepare(halving);
  const CostTable table(*planned.schedule, planned.model.costs);
  EXPECT_DOUBLE_EQ(table.duration({.micro_batch = MicroBatchId(0)}), 5 * (2 + 2) + 10);  // two sequences, not four
}

TEST(PredictTest, MessagesAndSumsUseLinksBetweenNodesOnSeveralNodes) {
  PlanProblem problem = round_problem(2, 4);  // two workers per node
  EXPECT_EQ(model_of(problem, two_stages("1f1b", 2, 2)).costs.links->alpha, 1);
  problem.workers = 4;
  Candidate candidate = two_stages("1f1b", 1, 2, 2);  // both replicas of a stage on one node, the stages on two nodes
  const CostModel costs = model_of(problem, candidate).costs;
  EXPECT_EQ(costs.links.value().alpha, 3);
  const double bytes = 4.0 * static_cast<double>(model_of(problem, candidate).footprints[1].parameters);
  EXPECT_DOUBLE_EQ(costs.all_reduce->seconds[1], 2 * 5 + 1 * 6 * bytes);
  candidate.schedule = "chimera";  // now the replicas of a stage are on both nodes
  const auto sum = [&] { return model_of(problem, candidate).costs.all_reduce->seconds[1]; };
  EXPECT_DOUBLE_EQ(sum(), 4 * 7 + 1.5 * 6 * bytes) << "devices: two rings, no faster than links within a node";
  problem.machine.all_reduce.within_node.beta = 1;
  EXPECT_DOUBLE_EQ(sum(), 4 * 7 + 1.5 * (8 / 2) * bytes) << "each ring passes half of the bytes";
  problem.machine.contention.node_transfers = 1;
  EXPECT_DOUBLE_EQ(sum(), 4 * 7 + 1.5 * 8 * bytes) << "both rings use one interface";
  problem.machine.all_reduce.within_node.beta = 6;
  problem.machine.cores = 2;
  EXPECT_DOUBLE_EQ(sum(), (2 * 5 + 1 * 6 * bytes) + (2 * 7 + 1 * 8 * bytes)) << "on each node, then between them";
}

TEST(PredictTest, FarReplicasKeepMessagesOnANodeAndSumsLeaveIt) {
  PlanProblem problem = round_problem(4, 4);  // two workers per node
  Candidate candidate = two_stages("1f1b", 1, 2, 2);
  candidate.replica_layout = ReplicaLayout::Far;
  const StageModel model = model_of(problem, candidate);
  const LinkCosts links = model.costs.links.value();
  EXPECT_EQ(links.alpha, 1);
  EXPECT_EQ(links.times(), (std::vector<double>{2 * links.bytes[0]}));
  const double bytes = 4.0 * static_cast<double>(model.footprints[1].parameters);
  EXPECT_DOUBLE_EQ(model.costs.all_reduce->seconds[1], 2 * 7 + 1 * 8 * bytes);
}

TEST(PredictTest, NodesFollowTheReplicaLayout) {
  PlanProblem problem = round_problem(4, 4);  // two workers per node
  Candidate candidate = two_stages("1f1b", 1, 2, 2);
  const auto nodes = [&] { return model_of(problem, candidate).nodes; };
  EXPECT_EQ(nodes(), (NodePlacement{{0, 1}, {2, 2}, {false, false}})) << "copies side by side";
  candidate.replica_layout = ReplicaLayout::Far;
  EXPECT_EQ(nodes(), (NodePlacement{{0, 0}, {1, 1}, {true, true}}));
  problem.machine.workers_per_node = 4;
  EXPECT_EQ(nodes(), NodePlacement{}) << "all on one";
  problem = round_problem(16, 16);
  problem.machine.workers_per_node = 8;
  candidate.shape.stages = 8;
  EXPECT_EQ(nodes(), (NodePlacement{std::vector<std::size_t>(8, 0), std::vector(8, 1), std::vector(8, true)}))
      << "two hosts with eight GPUs: the neighbors in a pipeline are on one";
}

TEST(PredictTest, GroupsOnANodeSendThroughItsInterface) {
  PlanProblem problem = round_problem(4, 4);  // two workers per node
  problem.machine.cores = 2;
  Candidate candidate = two_stages("1f1b", 1, 2, 2);
  const auto step = [&](double share) {
    problem.machine.contention.node_transfers = share;
    Predictor predictor(problem);
    return predictor.step_seconds(predictor.prepare(candidate), candidate);
  };
  const double bytes = model_of(problem, candidate).costs.links->bytes[0];
  EXPECT_NEAR(step(1) - step(0), 2 * 4 * bytes, 1e-6 * bytes) << "a message there and one back, at half speed";
}

TEST(PredictTest, SumsBetweenNodesComputeAsLongAsOnOneNode) {
  PlanProblem problem = round_problem(4, 4);  // two workers per node
  Candidate candidate = two_stages("1f1b", 1, 2, 2);
  const auto share = [&] { return model_of(problem, candidate).computing_share_of_sums; };
  EXPECT_EQ(share(), 1) << "each on one node";
  candidate.replica_layout = ReplicaLayout::Far;
  EXPECT_NEAR(share(), 6.0 / 8, 1e-6) << "of seconds a byte";
}

TEST(PredictTest, ShardedOptimizersNeedHalfOfAnAllReduceBeforeTheUpdateAndHalfAfterIt) {
  PlanProblem problem = round_problem(4, 4);  // two workers per node
  Candidate candidate = two_stages("1f1b", 1, 2, 2);
  for (const ReplicaLayout layout : {ReplicaLayout::Near, ReplicaLayout::Far}) {
    candidate.replica_layout = layout;
    problem.shard_optimizer = false;
    const StageModel whole = model_of(problem, candidate);
    problem.shard_optimizer = true;
    const StageModel sharded = model_of(problem, candidate);
    for (std::size_t s = 0; s < 2; ++s) {
      const double all_reduce = whole.costs.all_reduce->seconds[s];
      EXPECT_GT(all_reduce, 0);
      EXPECT_DOUBLE_EQ(sharded.costs.all_reduce->seconds[s], all_reduce / 2);
      EXPECT_DOUBLE_EQ(sharded.costs.optimizer[s], whole.costs.optimizer[s] / 2 + all_reduce / 2);
    }
    EXPECT_DOUBLE_EQ(sharded.computing_share_of_sums, whole.computing_share_of_sums);
  }
}

TEST(PredictTest, SecondShardsNeedAnAllReduceBeforeTheUpdateAndHalfOfOneAfterIt) {
  PlanProblem problem = round_problem(4, 4);
  Candidate candidate = two_stages("chimera", 2, 2, 2);
  const StageModel whole = model_of(problem, candidate);
  problem.shard_optimizer = problem.second_shards = true;
  const StageModel sharded = model_of(problem, candidate);
  for (std::size_t s = 0; s < 2; ++s) {
    const double all_reduce = whole.costs.all_reduce->seconds[s];
    EXPECT_DOUBLE_EQ(sharded.costs.all_reduce->seconds[s], all_reduce);
    EXPECT_DOUBLE_EQ(sharded.costs.optimizer[s], whole.costs.optimizer[s] / 2 + all_reduce / 2) << "four copies";
    EXPECT_DOUBLE_EQ(sharded.costs.memory[s].optimizer, whole.costs.memory[s].optimizer / 2);
  }
}

TEST(PredictTest, MessagesWithinANodeUseItsLinksOnSeveralNodes) {
  PlanProblem problem = round_problem(4, 8);  // two workers per node
  Candidate candidate = two_stages("1f1b", 4, 2);
  candidate.shape.stages = 4;
  const CostModel costs = model_of(problem, candidate).costs;
  const std::vector<double> times = costs.links.value().times();
  ASSERT_EQ(times.size(), 3U);
  EXPECT_DOUBLE_EQ(times[0], 2 * costs.links->bytes[0]);
  EXPECT_DOUBLE_EQ(times[1], 4 * costs.links->bytes[1]) << "from one node to the other";
  EXPECT_DOUBLE_EQ(times[2], 2 * costs.links->bytes[2]);
  EXPECT_EQ(costs.links->alpha, 3);
}

TEST(PredictTest, BurstsPassOnlyOnLinksBetweenNodes) {
  PlanProblem problem = round_problem(4, 8);               // two workers per node
  problem.machine.point_to_point.between_nodes.burst = 3;  // bytes, at 4 s each
  Candidate candidate = two_stages("1f1b", 4, 2);
  candidate.shape.stages = 4;
  Predictor predictor(problem);
  EXPECT_EQ(predictor.prepare(candidate).model.costs.links->bursts, (std::vector<double>{0, 12, 0}));
  problem.machine.point_to_point.between_nodes.burst = 0;
  EXPECT_TRUE(model_of(problem, candidate).costs.links->bursts.empty());
}

TEST(PredictTest, OpsSlowDownOnManyWorkersAsProfiled) {
  PlanProblem problem = round_problem(4, 8);
  problem.machine.cores = 0;
  Candidate candidate = two_stages("1f1b", 4, 1, 2);
  const auto forward = [&] { return model_of(problem, candidate).costs.stages[0].forward; };
  const double before = forward() - problem.machine.op_overhead;
  problem.machine.scale_loss = 0.5;
  EXPECT_DOUBLE_EQ(forward() - problem.machine.op_overhead, before * (1 + 0.5 * 2));
}

TEST(PredictTest, SumsSlowDownMessagesAsProfiled) {
  PlanProblem problem = round_problem(4, 8);
  problem.machine.cores = 0;
  Candidate candidate = two_stages("1f1b", 4, 1, 2);
  const auto seconds = [&] { return Predictor(problem).predict(candidate).step_seconds; };
  const double alone = seconds();
  problem.machine.contention = {.transfers = 1};
  EXPECT_GT(seconds(), alone);
}

TEST(PredictTest, WorkersThatShareCoresTakeTurns) {
  PlanProblem problem = with_free_links(round_problem(2, 4));
  const Candidate candidate = two_stages("1f1b", 4, 1);
  problem.machine.cores = 2;
  const double apart = Predictor(problem).predict(candidate).step_seconds;
  problem.machine.cores = 1;
  const Prediction shared = Predictor(problem).predict(candidate);
  EXPECT_GT(shared.step_seconds, 1.5 * apart);
  EXPECT_NEAR(shared.step_seconds, 4 * 2 * (5 * (3 + 1 + 2) + 20) + 11, 1e-9);  // all work in sequence
}

TEST(PredictTest, ReplicasOnANodeTakeTurnsOnItsCores) {
  PlanProblem problem = with_free_links(round_problem(4, 4));  // two workers per node
  // Each node has both replicas of one stage; ops of different stages take turns anyway.
  const Candidate candidate = two_stages("1f1b", 1, 2, 2);
  const auto step = [&](std::int64_t cores) {
    problem.machine.cores = cores;
    return Predictor(problem).predict(candidate).step_seconds - 11;
  };
  EXPECT_NEAR(step(1), 2 * step(2), 1e-9);
}

TEST(PredictTest, MessagesSlowDownOpsIfNoCoreIsFree) {
  PlanProblem problem = round_problem(2, 4);
  problem.machine.busy_delay = 100;
  const Candidate candidate = two_stages("1f1b", 2, 2);
  const auto costs_with = [&](std::int64_t cores) {
    problem.machine.cores = cores;
    return model_of(problem, candidate).costs;
  };
  const CostModel roomy = costs_with(4);
  EXPECT_EQ(roomy.links->alpha, 1);
  EXPECT_EQ(roomy.links->beta, 2);
  EXPECT_EQ(roomy.stages[0].forward, costs_with(0).stages[0].forward) << "a device of its own";
  const CostModel full = costs_with(2);
  const double half = (1 + 2 * roomy.memory[1].boundary) / 2;  // the message between the stages, in both directions
  EXPECT_EQ(full.links->alpha, 0);
  EXPECT_EQ(full.links->beta, 0);
  const Schedule schedule = find_generator("1f1b").generate({2, 2});
  const CostTable times(schedule, full);
  const CostTable alone(schedule, roomy);
  for (const Op& op : schedule.workers[0]) EXPECT_DOUBLE_EQ(times.duration(op), alone.duration(op) + half);
  for (const Op& op : schedule.workers[1]) EXPECT_DOUBLE_EQ(times.duration(op), alone.duration(op) + half);
  const Op weights{OpKind::BackwardWeight, ReplicaId(0), StageId(1), MicroBatchId(0)};
  EXPECT_DOUBLE_EQ(times.duration(weights), alone.duration(weights));
  EXPECT_EQ(costs_with(1).links->alpha, 100) << "both ends wait for a core";
}

TEST(PredictTest, MessagesSlowDownOpsAsMeasured) {
  PlanProblem problem = round_problem(2, 4);
  problem.machine.message_copy = {0.25, 0.5};
  const auto links_with = [&](std::int64_t cores) {
    problem.machine.cores = cores;
    return model_of(problem, two_stages("1f1b", 2, 2)).costs.links.value();
  };
  const LinkCosts full = links_with(2);
  EXPECT_DOUBLE_EQ(full.copies[0], 0.25 + 0.5 * full.bytes[0]);
  EXPECT_EQ(full.alpha, 0.5) << "the rest of the message's time, in which its ends compute";
  EXPECT_EQ(full.beta, 1);
  EXPECT_TRUE(links_with(4).copies.empty()) << "other cores do it";
  const LinkCosts device = links_with(0);
  EXPECT_EQ(device.copies, full.copies);
  EXPECT_EQ(device.alpha, 1);
  EXPECT_EQ(device.beta, 2) << "copies come before and after a device's link";
}

TEST(PredictTest, MessagesBetweenNodesSlowDownOpsAsMeasured) {
  PlanProblem problem = round_problem(4, 4);  // two workers per node
  problem.machine.cores = 2;
  problem.machine.message_copy = {0.25, 0.5};
  Candidate candidate = two_stages("1f1b", 4, 1);
  candidate.shape.stages = 4;
  const auto copies = [&] { return model_of(problem, candidate).costs.links.value().copies; };
  const std::vector<double> alike = copies();
  ASSERT_EQ(alike.size(), 3U);
  EXPECT_EQ(alike[1], alike[0]) << "as within a node, where nothing else is known";
  problem.machine.node_message_copy = {2, 0.5};
  EXPECT_EQ(copies(), (std::vector<double>{alike[0], alike[1] + 1.75, alike[2]}));
}

TEST(PredictTest, MessagesWithinAWorkerCostNothing) {
  PlanProblem problem = round_problem(2, 4);
  problem.machine.cores = 2;
  const Candidate folded{.schedule = "zb-v", .shape = {.stages = 2, .micro_batches = 2}, .micro_batch_size = 2};
  const CostModel costs = model_of(problem, folded).costs;
  ASSERT_EQ(costs.stages.size(), 4U);  // two blocks each; worker 1 holds stages 1 and 2
  const double half = (1 + 2 * costs.memory[1].boundary) / 2;
  const CostTable table(find_generator("zb-v").generate({2, 2}), costs);
  const Op forward{OpKind::Forward, ReplicaId(0), StageId(1), MicroBatchId(0)};
  EXPECT_DOUBLE_EQ(table.duration(forward), 2 * 4 + 10 + half) << "from stage 0, and nothing to stage 2";
}

TEST(PredictTest, OpsTakeTheTimeOfTheSlowestCoreUnlessCoresAreShared) {
  PlanProblem problem = round_problem(2, 4);
  problem.machine.core_imbalance = 0.5;
  const auto forward = [&](std::int64_t workers, std::int64_t cores, const Candidate& candidate) {
    problem.workers = workers;
    problem.machine.cores = cores;
    return model_of(problem, candidate).costs.stages[0].forward;
  };
  EXPECT_DOUBLE_EQ(forward(2, 8, two_stages("1f1b", 2, 2)), 5 * 4 * 1.5 + 10);
  problem.machine.point_to_point = {};
  EXPECT_DOUBLE_EQ(forward(2, 1, two_stages("1f1b", 2, 2)), 5 * 4 + 10) << "evened out";
  const Candidate alone{.schedule = "1f1b", .shape = {.stages = 1, .micro_batches = 2}, .micro_batch_size = 2};
  EXPECT_DOUBLE_EQ(forward(1, 8, alone), 10 * 4 + 10) << "waits for nobody";
}

TEST(PredictTest, AnOpThatRunsAloneTakesTheMeanTimeOfCores) {
  PlanProblem problem = with_free_links(round_problem(2, 2));
  problem.machine.cores = 2;
  problem.machine.op_overhead = 0;
  problem.machine.step_overhead = 0;
  problem.machine.contention.transfers = 1;  // without messages
  const auto seconds = [&](const Candidate& candidate) { return Predictor(problem).predict(candidate).step_seconds; };
  const Candidate serial = two_stages("1f1b", 1, 2);
  const Candidate parallel = two_stages("chimera", 2, 1);
  const double alone = seconds(serial);
  const double together = seconds(parallel);
  problem.machine.core_imbalance = 0.25;
  EXPECT_DOUBLE_EQ(seconds(serial), alone);
  EXPECT_DOUBLE_EQ(seconds(parallel), 1.25 * together) << "as slow as the slowest";
  problem.machine.contention.idle_gain = 0.25;
  EXPECT_DOUBLE_EQ(seconds(serial), 0.875 * alone);
  EXPECT_DOUBLE_EQ(seconds(parallel), 1.25 * together) << "no core idles";
}

TEST(PredictTest, SwitchingSlowsOpsWhileTheyOutnumberCores) {
  PlanProblem problem = with_free_links(round_problem(2, 2));
  problem.machine.cores = 1;
  problem.machine.step_overhead = 0;
  const auto seconds = [&](const Candidate& candidate) { return Predictor(problem).predict(candidate).step_seconds; };
  const double serial = seconds(two_stages("1f1b", 1, 2));
  const double parallel = seconds(two_stages("chimera", 2, 1));
  problem.machine.core_sharing = 0.25;
  EXPECT_DOUBLE_EQ(seconds(two_stages("1f1b", 1, 2)), serial) << "one op at a time";
  EXPECT_DOUBLE_EQ(seconds(two_stages("chimera", 2, 1)), 1.25 * parallel);
}

TEST(PredictTest, FewerReceivesArePostedAheadOnDevices) {
  PlanProblem problem = round_problem(2, 4);
  const auto receives = [&](std::int64_t cores) {
    problem.machine.cores = cores;
    return model_of(problem, two_stages("1f1b", 2, 2)).costs.buffers.receives_ahead;
  };
  EXPECT_EQ(receives(2), 2);
  EXPECT_EQ(receives(0), 1) << "each worker has its own device";
}

TEST(PredictTest, RecomputationTakesTheProfiledTime) {
  Predictor predictor(round_problem(2, 4));
  Candidate candidate = two_stages("1f1b", 2, 2);
  candidate.recompute = {StageId(0)};
  const auto recompute = predictor.prepare(candidate).model.costs.recompute;
  EXPECT_DOUBLE_EQ(recompute[0], 5 * 3 + 10);
  EXPECT_EQ(recompute[1], 0);
}

/// [worker]: bytes of messages that wait for their ops while a later message of their channel is made.
std::vector<double> waiting_while_more_come(const PlannedSchedule& planned) {
  const Schedule& schedule = *planned.schedule;
  const CostModel& costs = planned.model.costs;
  const Timeline timeline = simulate(schedule, costs);
  const auto start = [&](const Place& end) { return timeline.workers[end.worker].ops[end.position].start; };
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Message>> channels;
  for (const Message& message : explain(schedule, costs, timeline).messages)
    channels[{message.from.worker, message.to.worker}].push_back(message);
  std::vector<double> bytes(schedule.workers.size(), 0);
  for (const auto& [ends, messages] : channels) {
    std::int64_t most = 0;
    for (auto later = messages.begin(); later != messages.end(); ++later) {
      most = std::max(most, std::count_if(messages.begin(), later, [&](const Message& message) {
                        return start(message.to) > start(later->from);
                      }));
    }
    bytes[ends.second] += costs.memory[1].boundary * static_cast<double>(most);
  }
  return bytes;
}

TEST(PredictTest, PeaksByOrderCoverTheTimelineExceptForLongWaitingMessages) {
  for (const char* name : {"gpipe", "1f1b", "gems", "chimera", "zb-h1", "pipedream", "pipedream-2bw"}) {
    Predictor predictor(round_problem(4, 32));
    const Candidate candidate{.schedule = name, .shape = {.stages = 4, .micro_batches = 8}, .micro_batch_size = 4};
    const PlannedSchedule planned = predictor.prepare(candidate);
    const auto by_order = peaks_by_order(*planned.schedule, planned.model, {});
    const auto exact = predictor.predict(planned, candidate).worker_bytes;
    const auto waiting = waiting_while_more_come(planned);
    for (std::size_t w = 0; w < exact.size(); ++w)
      EXPECT_GE((by_order[w] + waiting[w]) * (1 + 1e-9), exact[w]) << name << ", worker " << w << " " << waiting[w];
    EXPECT_LE(std::ranges::max(by_order), 1.15 * std::ranges::max(exact)) << name;
  }
}

TEST(PredictTest, OtherKernelsKeepMore) {
  PlanProblem problem = round_problem(2, 4);
  const Candidate candidate = two_stages("1f1b", 2, 2);
  const StageMemory ours = model_of(problem, candidate).costs.memory[1];
  problem.machine.activation_scale = 2;
  problem.machine.score_bytes = 13;
  const StageMemory theirs = model_of(problem, candidate).costs.memory[1];
  const double scores = 13.0 * 4 * 2 * static_cast<double>(problem.model.heads) * 128 * 128;  // four blocks, b = 2
  EXPECT_DOUBLE_EQ(theirs.activations - theirs.boundary, 2 * (ours.activations - ours.boundary + scores));
  EXPECT_EQ(theirs.boundary, ours.boundary);
  EXPECT_EQ(theirs.weights, ours.weights);
}

TEST(PredictTest, RecomputationTradesTimeForMemory) {
  Predictor predictor(round_problem(4, 32));
  Candidate candidate{.schedule = "1f1b", .shape = {.stages = 4, .micro_batches = 8}, .micro_batch_size = 4};
  const Prediction none = predictor.predict(candidate);
  candidate.recompute = {StageId(0)};
  const Prediction one = predictor.predict(candidate);
  EXPECT_LT(one.worker_bytes[0], none.worker_bytes[0]);
  EXPECT_EQ(one.worker_bytes[3], none.worker_bytes[3]);
  EXPECT_GE(one.step_seconds, none.step_seconds * (1 - 1e-12)) << "no shorter, if hidden behind the gradient's way";
  candidate.recompute = {StageId(0), StageId(1), StageId(2), StageId(3)};
  EXPECT_GT(predictor.predict(candidate).step_seconds, none.step_seconds) << "the last stage waits for no gradient";
}

TEST(PredictTest, RecomputedAttentionTradesTimeForMemory) {
  Predictor predictor(round_problem(4, 32));
  Candidate candidate{.schedule = "1f1b", .shape = {.stages = 4, .micro_batches = 8}, .micro_batch_size = 4};
  const Prediction none = predictor.predict(candidate);
  candidate.blocks = {StageRule::Attention};
  const Prediction attention = predictor.predict(candidate);
  EXPECT_LT(attention.worker_bytes[0], none.worker_bytes[0]);
  EXPECT_GT(attention.step_seconds, none.step_seconds);
}

TEST(PredictTest, NoOrderIsFasterThanTheLowerBound) {
  for (const std::int64_t cores : {0, 2, 4, 8}) {
    PlanProblem problem = round_problem(4, 16);
    problem.machine.cores = cores;
    problem.machine.contention.idle_gain = 0.75;
    Predictor predictor(problem);
    for (const char* name : {"gpipe", "1f1b", "chimera", "zb-v", "pipedream-2bw"}) {
      for (const std::int64_t size : {1, 2, 4}) {
        const Candidate candidate{
            .schedule = name, .shape = {.stages = 4, .micro_batches = 16 / size}, .micro_batch_size = size};
        EXPECT_LE(least_step_seconds(problem, {candidate})[0], predictor.predict(candidate).step_seconds)
            << name << " on " << cores;
      }
    }
  }
}

TEST(CompareModelsTest, NamesTheCausesOfDifferences) {
  PlanProblem problem = round_problem(4, 8);
  problem.machine.point_to_point = {};
  problem.machine.op_overhead = 0;
  problem.machine.step_overhead = 0;
  problem.machine.optimizer_seconds = 0;
  problem.machine.all_reduce.between_nodes = {0, 1e-4};
  Predictor predictor(problem);
  const Candidate candidate{.schedule = "1f1b", .shape = {.stages = 2, .micro_batches = 4}, .data_parallel = 2};
  const ModelComparison models = compare_models(predictor, candidate);
  double sum = models.paper_seconds;
  for (const DifferenceCause& cause : models.causes) sum += cause.seconds;
  // the tolerance covers causes too small to name
  EXPECT_NEAR(sum, models.simulated_seconds, 0.03 * models.simulated_seconds);
  problem.machine.all_reduce = {};
  Predictor quiet(problem);
  const ModelComparison alike = compare_models(quiet, candidate);
  EXPECT_NEAR(alike.paper_seconds, alike.simulated_seconds, 1e-9);  // embedding and head cost as much as a block
  EXPECT_TRUE(alike.causes.empty());
}

TEST(PredictTest, CopiesOfAStageShareTheIterationsOfMuon) {
  PlanProblem problem = round_problem(4, 4);
  problem.machine.matrix_flops = {{DataType::Float32, 1e6}};
  Candidate candidate = two_stages("1f1b", 1, 2, 2);
  const StageModel adamw = model_of(problem, candidate);
  problem.workload.iteration_bytes = 4;
  const StageModel muon = model_of(problem, candidate);
  const std::vector<StageLayers> partition = even_partition(problem.model.layers, 2);
  for (std::size_t s = 0; s < 2; ++s) {
    const auto matrices = logical_matrices(problem.model, partition[s]);
    const double bytes = 4.0 * static_cast<double>(elements_of(matrices));
    const double gather = 0.5 * adamw.costs.all_reduce->seconds[s] * bytes / adamw.costs.memory[s].gradients;
    EXPECT_DOUBLE_EQ(muon.gathers[s], gather);
    EXPECT_DOUBLE_EQ(muon.costs.optimizer[s],
                     adamw.costs.optimizer[s] + busiest_iterations(matrices, 2) / 1e6 + gather);
    EXPECT_DOUBLE_EQ(muon.costs.memory[s].optimizer, adamw.costs.memory[s].optimizer + bytes);
  }
  candidate.data_parallel = 1;
  problem.workers = 2;
  const StageModel alone = model_of(problem, candidate);
  EXPECT_DOUBLE_EQ(
      alone.costs.optimizer[0],
      adamw.costs.optimizer[0] + busiest_iterations(logical_matrices(problem.model, partition[0]), 1) / 1e6);
}

TEST(CompareModelsTest, AFreeNetworkIsNoSlower) {
  PlanProblem problem = round_problem(2, 8);
  problem.machine.point_to_point = {{1, 0}, {1, 0}};
  Predictor predictor(problem);
  const Candidate candidate = two_stages("1f1b", 8, 1);
  EXPECT_LT(possible_gains(predictor, candidate).free_network_seconds, predictor.predict(candidate).step_seconds);
}

TEST(CompareModelsTest, AFreeNetworkAlsoGathersShardedParametersInNoTime) {
  PlanProblem problem = round_problem(4, 4);
  Candidate candidate = two_stages("1f1b", 1, 2, 2);
  problem.shard_optimizer = true;
  Predictor predictor(problem);
  const double free = possible_gains(predictor, candidate).free_network_seconds;
  problem.machine.point_to_point = {};
  problem.machine.all_reduce = {};
  EXPECT_NEAR(free, Predictor(problem).predict(candidate).step_seconds, 1e-6 * free);
}

TEST(TrainFlagsTest, DescribeTheCandidateAsWordsAndToml) {
  Candidate candidate{.schedule = "chimera", .shape = {.stages = 4, .micro_batches = 8}, .data_parallel = 2};
  candidate.micro_batch_size = 4;
  candidate.recompute = {StageId(0), StageId(2)};
  candidate.shape.scale = ScaleMethod::Doubling;
  PlanProblem problem = round_problem(8, 64);
  problem.shard_optimizer = true;
  const auto flags = train_flags(problem, candidate);
  EXPECT_EQ(to_toml(flags, "a plan"),
            "# a plan\nschedule = \"chimera\"\nstages = 4\nmicro-batches = 8\ndata-parallel = 2\nmicro-batch-size = 4\n"
            "recompute = \"0,2\"\npartition = \"even\"\npipelines = 2\nchunks = 1\nscale = "
            "\"doubling\"\nshard-optimizer = true\n");
  const auto words = to_words(flags);
  candidate.shape.scale = ScaleMethod::Direct;
  candidate.shape.slices = 2;
  EXPECT_THAT(to_toml(train_flags(problem, candidate), ""),
              ::testing::HasSubstr("slices = 2\nslice-lengths = \"64,64\"\n"));
  EXPECT_EQ(words.front(), "--schedule");
  EXPECT_EQ(words.back(), "--shard-optimizer");
}

}  // namespace
}  // namespace chimera
