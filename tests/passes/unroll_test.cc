#include "passes/unroll.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "check/check_schedule.h"
#include "support/message_of.h"
#include "support/schedules.h"

namespace chimera {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

Schedule generated(const std::string& name, const PipelineShape& shape) { return find_generator(name).generate(shape); }

/// Calls visit(step, steps, unrolled, where) for the asynchronous schedule with many shapes.
template <class Visit>
void for_many_streams(const std::string& name, const Visit& visit) {
  for (const PipelineShape& shape : testing::small_shapes(name, 8)) {
    const Schedule step = generated(name, shape);
    for (std::int64_t steps = 1; steps <= 5; ++steps)
      visit(step, steps, unroll(step, steps), testing::describe(name, shape) + " steps=" + std::to_string(steps));
  }
}

/// Most versions of one stage's weights alive at once. A version is alive from the update that makes it until its last
/// use; the newest is always alive. Updates follow `updates`.
std::int64_t most_versions_alive(const Schedule& schedule, std::size_t worker) {
  const auto& ops = schedule.workers[worker];
  std::map<std::int64_t, std::int64_t> uses;  // [version]: remaining ops
  for (const Op& op : ops) ++uses[op.weight_version];
  std::int64_t newest = 0;
  std::int64_t backwards = 0;
  std::size_t most = 1;
  for (const Op& op : ops) {
    EXPECT_LE(op.weight_version, newest) << "a version that is not made yet";
    if (--uses[op.weight_version] == 0) uses.erase(op.weight_version);
    if (op.kind == OpKind::Backward && ++backwards % schedule.updates->micro_batches == 0) ++newest;
    std::set<std::int64_t> alive = {newest};
    for (const auto& [version, count] : uses) {
      if (version <= newest) alive.insert(version);
    }
    most = std::max(most, alive.size());
  }
  return static_cast<std::int64_t>(most);
}

TEST(UnrollTest, SynchronousStepsFollowEachOther) {
  EXPECT_THAT(testing::orders(unroll(generated("1f1b", {2, 2}), 2)),
              ElementsAre("F0 F1 B0 B1 F2 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"));
}

TEST(UnrollTest, AsynchronousStepsHaveNoFlush) {
  EXPECT_THAT(testing::orders(unroll(generated("pipedream", {3, 3}), 2)),
              ElementsAre("F0 F1 F2 B0 F3 B1 F4 B2 F5 B3 B4 B5", "F0 F1 B0 F2 B1 F3 B2 F4 B3 F5 B4 B5",
                          "F0 B0 F1 B1 F2 B2 F3 B3 F4 B4 F5 B5"));
}

TEST(UnrollTest, AsManyMicroBatchesAreInFlightAsStagesForAnyStepLength) {
  EXPECT_THAT(testing::orders(unroll(generated("pipedream", {3, 1}), 4)),
              ElementsAre("F0 F1 F2 B0 F3 B1 B2 B3", "F0 F1 B0 F2 B1 F3 B2 B3", "F0 B0 F1 B1 F2 B2 F3 B3"));
}

TEST(UnrollTest, VersionsLimitTheMicroBatchesInFlight) {
  Schedule step = generated("pipedream", {4, 1});
  step.updates->versions = 2;
  const Schedule stream = unroll(step, 3);
  EXPECT_TRUE(check(stream).empty());
  EXPECT_THAT(testing::orders(stream)[0], "F0 F1 B0 F2 B1 B2");
}

TEST(UnrollTest, AStepInTheMiddleOfARunTakesOnlyItsOps) {
  for (const PipelineShape& shape : testing::small_shapes("pipedream", 8)) {
    const Schedule step = generated("pipedream", shape);
    const std::int64_t steps = steps_to_simulate(step);
    const Schedule stream = unroll(step, steps);
    const Timeline timeline = simulate(stream, CostModel::uniform(stream, testing::costs(1, 2)), {.steps = steps});
    EXPECT_EQ(timeline.period, 3 * static_cast<double>(shape.micro_batches)) << testing::describe("pipedream", shape);
  }
}

TEST(UnrollTest, EveryScheduleStaysLegalAndHoldsNoMore) {
  for (const Generator& generator : generators()) {
    for (const PipelineShape& shape : testing::small_shapes(generator.name, 5)) {
      const Schedule step = generator.generate(shape);
      const Schedule stream = unroll(step, 3);
      const auto violations = check(stream);
      ASSERT_TRUE(violations.empty()) << testing::describe(generator.name, shape) << ": " << violations[0].message;
      const Timeline one = testing::timed(step, 1, 2);
      const Timeline three = testing::timed(stream, 1, 2);
      for (std::size_t w = 0; w < one.workers.size(); ++w) {
        std::int64_t most = one.workers[w].peak_in_flight;
        if (generator.name == "pipedream") most = std::min(shape.stages - step.workers[w][0].stage.value(), 3 * most);
        EXPECT_EQ(three.workers[w].peak_in_flight, most) << testing::describe(generator.name, shape);
      }
    }
  }
}

TEST(UnrollTest, OneStepIsTheStep) {
  testing::for_every_schedule(5, [](const Schedule& step) { EXPECT_EQ(unroll(step, 1), step); });
}

TEST(UnrollTest, PipedreamIsOneLongStream) {
  for_many_streams("pipedream",
                   [](const Schedule& step, std::int64_t steps, const Schedule& stream, const std::string& where) {
                     EXPECT_EQ(stream, generated("pipedream", {step.stages, steps * step.micro_batches})) << where;
                   });
}

TEST(UnrollTest, PipedreamsVersionsAreTheClosedForm) {
  for_many_streams("pipedream",
                   [](const Schedule& step, std::int64_t, const Schedule& stream, const std::string& where) {
                     for (std::size_t w = 0; w < stream.workers.size(); ++w) {
                       for (const Op& op : stream.workers[w]) {
                         const std::int64_t behind = step.stages - 1 - op.stage.value();
                         EXPECT_EQ(op.weight_version, std::max<std::int64_t>(0, op.micro_batch.value() - behind))
                             << where << " " << to_text(op);
                       }
                       EXPECT_LE(most_versions_alive(stream, w), stream.updates->versions) << where;
                     }
                   });
}

TEST(UnrollTest, LongPipedreamKeepsItsStatedNumberOfVersions) {
  const Schedule stream = unroll(generated("pipedream", {4, 4}), 3);
  std::vector<std::int64_t> alive;
  for (std::size_t w = 0; w < 4; ++w) alive.push_back(most_versions_alive(stream, w));
  EXPECT_THAT(alive, ElementsAre(4, 3, 2, 1));
  EXPECT_EQ(stream.updates->versions, 4);
}

TEST(UnrollTest, TwoBwsVersionsAreTheClosedForm) {
  for_many_streams(
      "pipedream-2bw", [](const Schedule& step, std::int64_t, const Schedule& stream, const std::string& where) {
        for (std::size_t w = 0; w < stream.workers.size(); ++w) {
          for (const Op& op : stream.workers[w]) {
            const std::int64_t batch = op.micro_batch.value() / step.micro_batches;
            EXPECT_EQ(op.weight_version, std::max<std::int64_t>(0, batch - 1)) << where << " " << to_text(op);
          }
          EXPECT_LE(most_versions_alive(stream, w), 2) << where;
        }
      });
}

TEST(UnrollTest, AsynchronousStepsHaveNoBubbleBetweenThem) {
  for (const char* name : {"pipedream", "pipedream-2bw"}) {
    for_many_streams(name,
                     [](const Schedule& step, std::int64_t steps, const Schedule& stream, const std::string& where) {
                       const std::int64_t rounds = steps * step.micro_batches + step.stages - 1;
                       EXPECT_EQ(testing::timed(stream, 1, 2).makespan, static_cast<double>(rounds) * 3) << where;
                     });
  }
}

/// A step with split backward and an update for every two micro-batches: the update waits for W.
TEST(UnrollTest, SplitBackwardUpdatesAfterTheWeightGradients) {
  Schedule step = generated("zb-h1", {2, 2});
  step.updates = AsynchronousUpdates{.micro_batches = 2, .versions = 2};
  const Schedule stream = unroll(step, 2);
  EXPECT_THAT(testing::orders(step), ElementsAre("F0 F1 I0 W0 I1 W1", "F0 I0 F1 I1 W0 W1"));
  EXPECT_THAT(testing::orders(stream),
              ElementsAre("F0 F1 I0 W0 F2 I1 W1 F3 I2 W2 I3 W3", "F0 I0 F1 I1 W0 F2 W1 I2 F3 I3 W2 W3"));
  std::vector<std::int32_t> first_worker;
  for (const Op& op : stream.workers[0]) first_worker.push_back(op.weight_version);
  EXPECT_THAT(first_worker, ElementsAre(0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 1, 1));
}

void expect_rejected(const Schedule& step, std::int64_t steps, const char* what) {
  EXPECT_THAT(testing::message_of([&] { (void)unroll(step, steps); }, "accepted"), HasSubstr(what));
}

TEST(UnrollTest, RejectsSchedulesWithoutAStream) {
  const Schedule step = generated("chimera", {4, 4});
  expect_rejected(step, 0, "steps must be at least 1, not 0");
  expect_rejected(step, 1'000'000'000'000, "more than 100000000 ops");
  Schedule asynchronous = step;
  asynchronous.updates = AsynchronousUpdates{};
  expect_rejected(asynchronous, 2, "asynchronous with 2 replicas");
}

}  // namespace
}  // namespace chimera
