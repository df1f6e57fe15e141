#include "schedule/message_header.h"

#include <gtest/gtest.h>

#include <limits>

namespace chimera {
namespace {

MessageTag tag(std::int64_t step, OpKind kind, std::int64_t replica, std::int64_t stage, std::int64_t micro_batch) {
  return {step, {kind, ReplicaId(replica), StageId(stage), MicroBatchId(micro_batch)}};
}

TEST(MessageHeaderTest, HoldsItsTag) {
  constexpr auto kMax = std::numeric_limits<std::int64_t>::max();
  for (const MessageTag& each : {tag(1, OpKind::Forward, 0, 0, 0), tag(7, OpKind::Backward, 1, 3, 12),
                                 tag(kMax, OpKind::BackwardInput, 32767, 99'999, 99'999'999)}) {
    EXPECT_EQ(tag_of(to_header(each)), each) << to_text(each);
  }
  MessageTag checked = tag(1, OpKind::Forward, 0, 0, 0);
  for (const std::uint64_t checksum : {std::uint64_t{0}, std::numeric_limits<std::uint64_t>::max()}) {
    checked.checksum = checksum;
    EXPECT_EQ(tag_of(to_header(checked)).value().checksum, checksum);
  }
  EXPECT_EQ(tag_of(to_header(tag(1, OpKind::Forward, 0, 0, 0))).value().checksum, std::nullopt);
  MessageTag timed = tag(1, OpKind::Forward, 0, 0, 0);
  timed.sent = 12345.75;
  EXPECT_EQ(tag_of(to_header(timed)).value().sent, 12345.75);
  MessageTag sliced = tag(7, OpKind::Forward, 0, 1, 3);
  sliced.op.slice = 255;
  EXPECT_EQ(tag_of(to_header(sliced)), sliced);
  EXPECT_NE(tag_of(to_header(sliced)), tag(7, OpKind::Forward, 0, 1, 3));
  EXPECT_EQ(to_text(sliced), "1F3.255 of replica 0 in step 7");
  EXPECT_EQ(to_text(tag(7, OpKind::Forward, 0, 1, 3)), "1F3 of replica 0 in step 7");
}

TEST(MessageHeaderTest, RefusesACorruptByte) {
  const MessageHeader header = to_header(tag(1, OpKind::Forward, 0, 0, 0));
  for (const std::size_t place : {0, 7, 26, 27, 30, 32, 63}) {  // magic number, kind, kind of the checksum, zeros
    MessageHeader spoiled = header;
    spoiled[place] ^= 0x80;
    EXPECT_FALSE(tag_of(spoiled)) << place;
  }
  EXPECT_FALSE(tag_of(MessageHeader{}));
}

}  // namespace
}  // namespace chimera
