// A tensor and the header before it, in one buffer.

#include "transport/message.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/error.h"

namespace chimera {
namespace {

const RankId kZero(0), kOne(1);

MessageTag tag(std::int64_t step, const Op& op) { return {step, op}; }

Op forward(std::int64_t stage, std::int64_t micro_batch) {
  return {OpKind::Forward, ReplicaId(0), StageId(stage), MicroBatchId(micro_batch)};
}

TEST(MessageTest, KeepsTheTensorItsAlignmentAndItsSize) {
  const at::Tensor tensor = at::arange(6, at::kDouble).reshape({2, 3});
  const at::Tensor message = make_message(tensor, tag(1, forward(0, 0)));
  EXPECT_EQ(message.numel(), kHeaderBytes + 6 * 8);
  const at::Tensor arrived = tensor_of(message, {{2, 3}, at::kDouble});
  EXPECT_TRUE(at::equal(arrived, tensor));
  EXPECT_TRUE(arrived.is_contiguous());
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(arrived.data_ptr()) % 64, 0U);
  EXPECT_EQ(message_buffer({{2, 3}, at::kDouble}).numel(), message.numel());
}

TEST(MessageTest, AnyDifferenceIsAnErrorThatNamesBothEnds) {
  const MessageTag expected = tag(7, forward(1, 3));
  const at::Tensor message = make_message(at::ones({2}), expected);
  EXPECT_NO_THROW(check_message(message, expected, kOne, kZero));
  Op other_replica = forward(1, 3);
  other_replica.replica = ReplicaId(1);
  Op gradient = forward(1, 3);
  gradient.kind = OpKind::BackwardInput;
  for (const MessageTag& waited_for :
       {tag(8, forward(1, 3)), tag(7, forward(2, 3)), tag(7, forward(1, 2)), tag(7, other_replica), tag(7, gradient)}) {
    try {
      check_message(message, waited_for, kOne, kZero);
      ADD_FAILURE() << to_text(waited_for) << " was taken for " << to_text(expected);
    } catch (const TransportError& error) {
      EXPECT_EQ(error.what(), "rank 1 sent 1F3 of replica 0 in step 7, but rank 0 waits for " + to_text(waited_for) +
                                  "; both ends must follow the same program");
    }
  }
}

TEST(MessageTest, BytesWithoutAHeaderAreRefused) {
  EXPECT_THROW(check_message(at::zeros({80}, at::kByte), tag(1, forward(0, 0)), kOne, kZero), TransportError);
}

}  // namespace
}  // namespace chimera
