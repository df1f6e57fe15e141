
#include "transport/message.h"

#include <ATen/Functions.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>

#include "core/error.h"
#include "support/message_of.h"

namespace chimera {
namespace {

const RankId kFirst(0), kSecond(1);

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
  EXPECT_NO_THROW(static_cast<void>(open_message(message, {{2}}, expected, kSecond, kFirst)));
  Op other_replica = forward(1, 3);
  other_replica.replica = ReplicaId(1);
  Op gradient = forward(1, 3);
  gradient.kind = OpKind::BackwardInput;
  for (const MessageTag& waited_for :
       {tag(8, forward(1, 3)), tag(7, forward(2, 3)), tag(7, forward(1, 2)), tag(7, other_replica), tag(7, gradient)}) {
    try {
      static_cast<void>(open_message(message, {{2}}, waited_for, kSecond, kFirst));
      ADD_FAILURE() << to_text(waited_for) << " was taken for " << to_text(expected);
    } catch (const TransportError& error) {
      EXPECT_EQ(error.what(), "rank 1 sent 1F3 of replica 0 in step 7, but rank 0 waits for " + to_text(waited_for) +
                                  "; both ends must follow the same program");
    }
  }
}

TEST(MessageTest, BytesWithoutAHeaderAreRefused) {
  EXPECT_THROW(
      static_cast<void>(open_message(at::zeros({80}, at::kByte), {{4}}, tag(1, forward(0, 0)), kSecond, kFirst)),
      TransportError);
}

const TensorSpec kVerified{.sizes = {100}, .dtype = at::kFloat, .is_verified = true};

/// A message of `tensor` with its checksum.
at::Tensor checked_message(const at::Tensor& tensor) {
  MessageTag checked = tag(7, forward(1, 3));
  checked.checksum = checksum_of(tensor);
  return make_message(tensor, checked);
}

/// Expects that the message is rejected if any single bit in [from, until) is flipped.
void expect_each_flip_found(const at::Tensor& message, std::int64_t from, std::int64_t until) {
  auto* bytes = message.data_ptr<std::uint8_t>();
  for (std::int64_t bit = from; bit < until; ++bit) {
    const auto mask = static_cast<std::uint8_t>(1U << (bit % 8));
    bytes[bit / 8] ^= mask;
    EXPECT_THROW(static_cast<void>(open_message(message, kVerified, tag(7, forward(1, 3)), kSecond, kFirst)),
                 TransportError)
        << bit;
    bytes[bit / 8] ^= mask;
  }
}

TEST(MessageTest, DetectsEveryFlippedBit) {
  const at::Tensor tensor = at::arange(100, at::kFloat);
  const at::Tensor message = checked_message(tensor);
  EXPECT_TRUE(at::equal(open_message(message, kVerified, tag(7, forward(1, 3)), kSecond, kFirst), tensor));
  expect_each_flip_found(message, 8 * kHeaderBytes, 8 * message.numel());
}

TEST(MessageTest, DetectsFlippedBitsInTheHeader) {
  expect_each_flip_found(checked_message(at::ones({100})), 0, 8 * kHeaderBytes);
}

TEST(MessageTest, FlippedBitsAreReportedWithBothEndsAndTheOp) {
  const auto error_of = [](OpKind kind, std::optional<std::uint64_t> checksum) {
    MessageTag arrived{7, {kind, ReplicaId(1), StageId(2), MicroBatchId(3)}, checksum};
    return testing::message_of<TransportError>(
        [&] { check_bits(at::zeros({100}), kVerified, arrived, kSecond, kFirst); }, "nothing");
  };
  EXPECT_THAT(
      error_of(OpKind::Forward, 255),
      ::testing::MatchesRegex("the activations of stage 2 for micro-batch 3 of replica 1 in step 7 changed on "
                              "the way from rank 1 to rank 0 .XXH3 [0-9a-f]+, sent with 00000000000000ff.: .*"));
  EXPECT_THAT(error_of(OpKind::BackwardInput, std::nullopt),
              ::testing::MatchesRegex("the gradient of stage 2 .* sent with none.*"));
  EXPECT_EQ(error_of(OpKind::Forward, checksum_of(at::zeros({100}))), "nothing");
}

}  // namespace
}  // namespace chimera
