#include "schedule/message_header.h"

#include <fmt/format.h>

#include <bit>

namespace chimera {
namespace {

constexpr std::uint64_t kMagic = 0x31617265'6d696863;  // "chimera1"

// The layout is fixed: ranks of different builds of one version exchange headers. Fields are ordered by size, so that
// there is no padding with undefined bytes; reserved bytes are zero and are checked.
struct HeaderFields {
  std::uint64_t magic = kMagic;
  std::int64_t step = 0;
  std::int32_t stage = 0;
  std::int32_t micro_batch = 0;
  std::int16_t replica = 0;
  std::uint8_t kind = 0;
  std::uint8_t has_checksum = 0;
  std::int16_t slice = 0;
  std::uint16_t zero = 0;
  std::uint64_t checksum = 0;
  double sent = 0;
  std::uint64_t inverted_sent = 0;  // The bits of `sent`, because the checksum covers the tensor alone
  std::uint8_t zeros[8] = {};
};
static_assert(sizeof(HeaderFields) == kHeaderBytes);

}  // namespace

std::string to_text(const MessageTag& tag) {
  return fmt::format("{} of replica {} in step {}", to_text(tag.op), tag.op.replica.value(), tag.step);
}

MessageHeader to_header(const MessageTag& tag) {
  const HeaderFields fields = {.step = tag.step,
                               .stage = static_cast<std::int32_t>(tag.op.stage.value()),
                               .micro_batch = static_cast<std::int32_t>(tag.op.micro_batch.value()),
                               .replica = static_cast<std::int16_t>(tag.op.replica.value()),
                               .kind = static_cast<std::uint8_t>(tag.op.kind),
                               .has_checksum = static_cast<std::uint8_t>(tag.checksum ? 1 : 0),
                               .slice = tag.op.slice,
                               .checksum = tag.checksum.value_or(0),
                               .sent = tag.sent,
                               .inverted_sent = ~std::bit_cast<std::uint64_t>(tag.sent)};
  return std::bit_cast<MessageHeader>(fields);
}

std::optional<MessageTag> tag_of(const MessageHeader& header) {
  const auto fields = std::bit_cast<HeaderFields>(header);
  // A kind out of range must not become an OpKind: tables are indexed with it.
  if (fields.magic != kMagic || fields.kind >= kOpKinds) return std::nullopt;
  const MessageTag tag = {fields.step,
                          {.kind = static_cast<OpKind>(fields.kind),
                           .replica = ReplicaId(fields.replica),
                           .stage = StageId(fields.stage),
                           .micro_batch = MicroBatchId(fields.micro_batch),
                           .slice = fields.slice},
                          fields.has_checksum != 0 ? std::optional(fields.checksum) : std::nullopt,
                          fields.sent};
  // Reserved bytes that are not zero mean another format.
  return to_header(tag) == header ? std::optional(tag) : std::nullopt;
}

}  // namespace chimera
