#include "search/makespan_bound.h"

#include <gtest/gtest.h>

#include "search/problems.h"

namespace chimera {
namespace {

using testing::alike;
using testing::split;

double bound_of(const SearchProblem& problem) { return least_makespan(make_instance(problem)); }

TEST(SearchBoundTest, CountsThePathToTheMiddleAndItsWork) {
  // N (F+I+W) + (D/2 - 1) (F + latency): the middle workers start last.
  SearchProblem problem = testing::eight_stages(16, 2, 0.1);
  problem.limits.clear();
  EXPECT_NEAR(bound_of(problem), 16 * 3 + 3 * 1.1, 1e-9);
}

TEST(SearchBoundTest, CountsTheRoundTripOfASingleMicroBatchInFlight) {
  // Worker 0 holds one micro-batch at a time: each one travels to the last stage and back before the next starts.
  const SearchProblem problem = alike(PlacementKind::Linear, {.stages = 4, .micro_batches = 5}, split(1, 1, 1), 0.5, 1);
  const double there_and_back = 4 * 1 + 4 * 1 + 6 * 0.5;
  EXPECT_NEAR(bound_of(problem), 5 * (there_and_back + 1), 1e-9);
}

TEST(SearchBoundTest, CountsTheWaitForTheFirstGradientWithFullMemory) {
  // A middle worker of 16 starts at 7.7. The first gradient arrives at 25.2, after 16 forwards, 7 gradients and 22
  // messages. Until then the number of forwards is limited by the worker's memory.
  const auto bound = [](double room) {
    return bound_of(
        alike(PlacementKind::Bidirectional, {.stages = 16, .micro_batches = 32}, split(1, 1, 1), 0.1, room));
  };
  EXPECT_NEAR(bound(16), 32 * 3 + 7 * 1.1 + 1.5, 1e-9);
  EXPECT_NEAR(bound(18), 32 * 3 + 7 * 1.1, 1e-9);
}

}  // namespace
}  // namespace chimera
