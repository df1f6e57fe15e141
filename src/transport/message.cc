#include "transport/message.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cstring>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::uint64_t kMagic = 0x31617265'6d696863;  // "chimera1"

/// The first bytes of a message, in the byte order of the machines.
struct Header {
  std::uint64_t magic = kMagic;
  std::int64_t step = 0;
  std::int32_t stage = 0;
  std::int32_t micro_batch = 0;
  std::int16_t replica = 0;
  std::uint8_t kind = 0;
  std::uint8_t zeros[37] = {};
};
static_assert(sizeof(Header) == kHeaderBytes);

Header to_header(const MessageTag& tag) {
  return {.step = tag.step,
          .stage = static_cast<std::int32_t>(tag.op.stage.value()),
          .micro_batch = static_cast<std::int32_t>(tag.op.micro_batch.value()),
          .replica = static_cast<std::int16_t>(tag.op.replica.value()),
          .kind = static_cast<std::uint8_t>(tag.op.kind)};
}

MessageTag to_tag(const Header& header) {
  return {header.step,
          {.kind = static_cast<OpKind>(header.kind),
           .replica = ReplicaId(header.replica),
           .stage = StageId(header.stage),
           .micro_batch = MicroBatchId(header.micro_batch)}};
}

}  // namespace

std::string to_text(const MessageTag& tag) {
  return fmt::format("{} of replica {} in step {}", to_text(tag.op), tag.op.replica.value(), tag.step);
}

void throw_mismatch(RankId from, RankId to, const MessageTag& expected, const std::string& arrived) {
  throw TransportError(fmt::format("rank {} sent {}, but rank {} waits for {}; both ends must follow the same program",
                                   from.value(), arrived, to.value(), to_text(expected)));
}

at::Tensor message_buffer(const TensorSpec& spec) {
  const std::int64_t bytes =
      c10::multiply_integers(spec.sizes) * static_cast<std::int64_t>(c10::elementSize(spec.dtype));
  return at::empty({kHeaderBytes + bytes}, at::kByte);
}

at::Tensor tensor_of(const at::Tensor& buffer, const TensorSpec& spec) {
  // As narrow(), view(dtype) and view(sizes) would make it, at a tenth of their cost.
  const auto dtype = c10::scalarTypeToTypeMeta(spec.dtype);
  at::Tensor tensor = at::detail::make_tensor<at::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(buffer.storage()),
                                                              buffer.key_set(), dtype);
  auto* parts = tensor.unsafeGetTensorImpl();
  parts->set_storage_offset(kHeaderBytes / static_cast<std::int64_t>(dtype.itemsize()));
  parts->set_sizes_contiguous(spec.sizes);
  return tensor;
}

at::Tensor make_message(const at::Tensor& tensor, const MessageTag& tag) {
  const Header header = to_header(tag);
  if (const auto whole = with_header_room(tensor)) {
    std::memcpy(whole->data_ptr(), &header, sizeof header);
    return *whole;
  }
  at::Tensor message = at::empty({kHeaderBytes + static_cast<std::int64_t>(tensor.nbytes())}, at::kByte);
  auto* begin = message.data_ptr<std::uint8_t>();
  std::memcpy(begin, &header, sizeof header);
  std::memcpy(begin + kHeaderBytes, tensor.const_data_ptr(), tensor.nbytes());
  return message;
}

void check_message(const at::Tensor& buffer, const MessageTag& expected, RankId from, RankId to) {
  Header header;
  std::memcpy(&header, buffer.data_ptr(), sizeof header);
  const bool sound = header.magic == kMagic && header.kind < kOpKinds;
  const MessageTag arrived = to_tag(header);
  if (sound && arrived == expected) return;
  throw_mismatch(from, to, expected, sound ? to_text(arrived) : "bytes without a header");
}

}  // namespace chimera
