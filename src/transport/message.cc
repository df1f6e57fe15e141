#define XXH_STATIC_LINKING_ONLY
#define XXH_INLINE_ALL
#include "transport/message.h"

#include <ATen/Functions.h>
#include <fmt/format.h>
#include <xxhash.h>

#include <cstring>

#include "core/error.h"
#include "core/fault_point.h"

namespace chimera {
void throw_mismatch(RankId from, RankId to, const MessageTag& expected, const std::string& arrived) {
  throw TransportError(fmt::format("rank {} sent {}, but rank {} waits for {}; both ends must follow the same program",
                                   from.value(), arrived, to.value(), to_text(expected)));
}

std::uint64_t checksum_of(const at::Tensor& tensor) { return XXH3_64bits(tensor.const_data_ptr(), tensor.nbytes()); }

void check_bits(const at::Tensor& tensor, const TensorSpec& spec, const MessageTag& arrived, RankId from, RankId to) {
  if (fault_point("message")) static_cast<std::uint8_t*>(tensor.data_ptr())[tensor.nbytes() / 2] ^= 1U;
  if (!spec.is_verified) return;
  const std::uint64_t checksum = checksum_of(tensor);
  if (arrived.checksum == checksum) return;
  const Op& op = arrived.op;
  throw TransportError(fmt::format(
      "the {} of stage {} for micro-batch {} of replica {} in step {} changed on the way from rank {} to rank {} (XXH3 "
      "{:016x}, sent with {}): memory, a processor or a network changes bits",
      op.kind == OpKind::Forward ? "activations" : "gradient", op.stage.value(), op.micro_batch.value(),
      op.replica.value(), arrived.step, from.value(), to.value(), checksum,
      arrived.checksum ? fmt::format("{:016x}", *arrived.checksum) : "none"));
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
  const MessageHeader header = to_header(tag);
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

at::Tensor open_message(const at::Tensor& buffer, const TensorSpec& spec, const MessageTag& expected, RankId from,
                        RankId to) {
  MessageHeader header;
  std::memcpy(&header, buffer.data_ptr(), sizeof header);
  const std::optional<MessageTag> arrived = tag_of(header);
  if (arrived != expected) {
    throw_mismatch(from, to, expected, arrived ? to_text(*arrived) : "bytes without a header");
  }
  at::Tensor tensor = tensor_of(buffer, spec);
  check_bits(tensor, spec, *arrived, from, to);
  return tensor;
}

}  // namespace chimera
