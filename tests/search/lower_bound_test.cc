#include "search/lower_bound.h"

#include <gtest/gtest.h>

#include "search/problems.h"

namespace chimera {
namespace {

using testing::alike;
using testing::split;

double bound_of(const SearchProblem& problem) { return LowerBound(make_instance(problem)).at_start(); }

TEST(SearchBoundTest, CountsTheWayToTheMiddleAndItsWork) {
  // N (F+I+W) + (D/2 - 1) (F + latency): the middle workers start last.
  EXPECT_NEAR(bound_of(testing::eight_stages(16, 2, 0.1)), 16 * 3 + 3 * 1.1, 1e-9);
}

TEST(SearchBoundTest, KnowsThatOneMicroBatchInFlightIsALoneTraveller) {
  // Worker 0 holds one micro-batch at a time: each goes to the last stage and back before the next one starts.
  const SearchProblem problem = alike(PlacementKind::Linear, {.stages = 4, .micro_batches = 5}, split(1, 1, 1), 0.5, 1);
  const double there_and_back = 4 * 1 + 4 * 1 + 6 * 0.5;
  EXPECT_NEAR(bound_of(problem), 5 * (there_and_back + 1), 1e-9);
}

}  // namespace
}  // namespace chimera
