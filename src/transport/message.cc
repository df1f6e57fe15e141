#include "transport/message.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <cstring>

#include "core/error.h"

namespace chimera {
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

void check_message(const at::Tensor& buffer, const MessageTag& expected, RankId from, RankId to) {
  MessageHeader header;
  std::memcpy(&header, buffer.data_ptr(), sizeof header);
  const std::optional<MessageTag> arrived = tag_of(header);
  if (arrived == expected) return;
  throw_mismatch(from, to, expected, arrived ? to_text(*arrived) : "bytes without a header");
}

}  // namespace chimera
