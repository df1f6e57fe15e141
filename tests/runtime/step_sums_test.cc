// The numbers of a step keep their places when they are packed, summed and unpacked.

#include "runtime/step_reduction.h"

#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

namespace chimera {
namespace {

using ::testing::ElementsAre;

StepSums numbers_of_a_step() {
  return {.squares = {1, 2},
          .losses = {3, 4, 5},
          .peak_memory = {6},
          .used_memory = {16},
          .allocation_retries = {17},
          .shared = {18},
          .votes = SaveVotes{7, 8, 9, 10, 11}.pack(),
          .recordings = {12}};
}

TEST(StepSumsTest, UnpackedFieldsHoldTheSumOfEachNumber) {
  std::vector<double> numbers = numbers_of_a_step().pack();
  for (double& number : numbers) number *= 2;
  StepSums sums = numbers_of_a_step();
  sums.unpack(numbers);
  EXPECT_THAT(sums.squares, ElementsAre(2, 4));
  EXPECT_THAT(sums.losses, ElementsAre(6, 8, 10));
  EXPECT_THAT(sums.peak_memory, ElementsAre(12));
  EXPECT_THAT(sums.used_memory, ElementsAre(32));
  EXPECT_THAT(sums.allocation_retries, ElementsAre(34));
  EXPECT_THAT(sums.shared, ElementsAre(36));
  EXPECT_THAT(sums.votes, ElementsAre(14, 16, 18, 20, 22));
  EXPECT_THAT(sums.recordings, ElementsAre(24));
}

TEST(StepSumsTest, ARunWithoutCheckpointsAndGraphsHasNoVotes) {
  StepSums sums = numbers_of_a_step();
  sums.votes.clear();
  sums.recordings.clear();
  EXPECT_THAT(sums.pack(), ElementsAre(1, 2, 3, 4, 5, 6, 16, 17, 18));
}

TEST(StepSumsTest, APackedTensorIsReadAndWrittenInPlace) {
  const StepSums sums = numbers_of_a_step();
  const at::Tensor packed = at::tensor(sums.pack());
  sums.squares_in(packed).fill_(20);
  sums.loss_in(packed, 1).fill_(30);
  EXPECT_TRUE(at::equal(packed.narrow(0, 0, 6), at::tensor(std::vector<double>{20, 20, 3, 30, 5, 6})));
}

TEST(StepSumsTest, AnyNumberThatIsNotFiniteIsFound) {
  for (auto field : {&StepSums::squares, &StepSums::losses, &StepSums::peak_memory, &StepSums::used_memory,
                     &StepSums::allocation_retries}) {
    StepSums sums = numbers_of_a_step();
    EXPECT_TRUE(sums.are_finite());
    (sums.*field).back() = std::numeric_limits<double>::infinity();
    EXPECT_FALSE(sums.are_finite());
  }
}

}  // namespace
}  // namespace chimera
