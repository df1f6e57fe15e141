#define XXH_INLINE_ALL  // header-only: one hash, no library to link
#include "transport/message.h"

#include <xxhash.h>

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>
#include <fmt/format.h>
#include <cstring>
#include <memory>

#include "core/error.h"
#include "core/fault_point.h"

#define XXH_STATIC_LINKING_ONLY

namespace chimera {
namespace {

/// Flag in the header room: nonzero while a result of with_header_room() is alive.
using Lent = std::uint64_t;

void set_lent(void* room, Lent lent) { std::memcpy(room, &lent, sizeof lent); }

bool is_lent(const void* room) {
  Lent lent = 0;
  std::memcpy(&lent, room, sizeof lent);
  return lent != 0;
}

/// LibTorch's own allocator, with kHeaderRoomBytes before each block.
class HeaderRoomAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    // ATen accepts null for empty tensors, and with_header_room() then finds no room.
    if (size == 0) return {nullptr, at::kCPU};
    c10::DataPtr whole = c10::GetDefaultCPUAllocator()->allocate(size + static_cast<std::size_t>(kHeaderRoomBytes));
    auto* begin = static_cast<char*>(whole.release_context());
    set_lent(begin, 0);
    // the pointer is its own context, as ATen requires
    char* memory = begin + kHeaderRoomBytes;
    return {memory, memory, &free_whole, at::kCPU};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_whole; }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

  static void free_whole(void* memory) {
    if (memory != nullptr) c10::GetDefaultCPUAllocator()->raw_deleter()(static_cast<char*>(memory) - kHeaderRoomBytes);
  }
};

void give_back(void* lender) {
  const std::unique_ptr<at::Tensor> tensor(static_cast<at::Tensor*>(lender));
  set_lent(static_cast<char*>(tensor->storage().data_ptr().get()) - kHeaderRoomBytes, 0);
}

}  // namespace

void leave_header_room() {
  static HeaderRoomAllocator allocator;
  static const bool once = (c10::SetCPUAllocator(&allocator, /*priority=*/1), true);
  static_cast<void>(once);
}

// The room belongs to the memory, not to the tensor, and several messages can be in flight from one tensor. So the flag
// is in the room itself, and a second message while the first is alive is copied.
std::optional<at::Tensor> with_header_room(const at::Tensor& tensor) {
  // The deleter shows who has allocated the memory: a tensor of numpy, of shared memory or from before
  // leave_header_room() has no room. Nor has a view that begins in the middle of its storage.
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  const bool has_room = memory.get() != nullptr && memory.get_deleter() == &HeaderRoomAllocator::free_whole;
  if (!has_room || tensor.storage_offset() != 0) return std::nullopt;
  char* room = static_cast<char*>(memory.get()) - kHeaderRoomBytes;
  if (is_lent(room)) return std::nullopt;
  set_lent(room, 1);
  // The context keeps the tensor, and with it the memory, until the message is sent; then give_back() clears the flag.
  const auto bytes = kHeaderRoomBytes + static_cast<std::int64_t>(tensor.nbytes());
  return at::for_blob(room, {bytes}).context(new at::Tensor(tensor), &give_back).options(at::kByte).make_tensor();
}

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
  // Equals narrow(), view(dtype) and view(sizes), at a tenth of their cost.
  const auto dtype = c10::scalarTypeToTypeMeta(spec.dtype);
  at::Tensor tensor = at::detail::make_tensor<at::TensorImpl>(c10::TensorImpl::VIEW, c10::Storage(buffer.storage()),
                                                              buffer.key_set(), dtype);
  auto* parts = tensor.unsafeGetTensorImpl();
  parts->set_storage_offset(kHeaderBytes / static_cast<std::int64_t>(dtype.itemsize()));
  parts->set_sizes_contiguous(spec.sizes);
  return tensor;
}

// A copy would read and write the whole tensor once more, so the header goes into free bytes before it if there are
// any.
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
                        RankId to, double* sent) {
  MessageHeader header;
  std::memcpy(&header, buffer.data_ptr(), sizeof header);
  const std::optional<MessageTag> arrived = tag_of(header);
  if (arrived != expected) throw_mismatch(from, to, expected, arrived ? to_text(*arrived) : "bytes without a header");
  at::Tensor tensor = tensor_of(buffer, spec);
  check_bits(tensor, spec, *arrived, from, to);
  if (sent != nullptr) *sent = arrived->sent;
  return tensor;
}

}  // namespace chimera
