#include "transport/header_room.h"

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>
#include <memory>

namespace chimera {
namespace {

/// Stands in the first bytes of the header room while a result of with_header_room is alive; 0 stands there otherwise.
using Lent = std::uint64_t;

void set_lent(void* room, Lent lent) { std::memcpy(room, &lent, sizeof lent); }

bool is_lent(const void* room) {
  Lent lent = 0;
  std::memcpy(&lent, room, sizeof lent);
  return lent != 0;
}

/// The memory of LibTorch's own allocator, entered kHeaderRoomBytes late.
class HeaderRoomAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(std::size_t size) override {
    if (size == 0) return {nullptr, at::kCPU};
    c10::DataPtr whole = c10::GetDefaultCPUAllocator()->allocate(size + static_cast<std::size_t>(kHeaderRoomBytes));
    auto* begin = static_cast<char*>(whole.release_context());
    set_lent(begin, 0);
    char* memory = begin + kHeaderRoomBytes;  // its own context, as kernels that allocate without a tensor require
    return {memory, memory, &free_whole, at::kCPU};
  }
  [[nodiscard]] c10::DeleterFnPtr raw_deleter() const override { return &free_whole; }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

  static void free_whole(void* memory) {
    if (memory != nullptr) c10::GetDefaultCPUAllocator()->raw_deleter()(static_cast<char*>(memory) - kHeaderRoomBytes);
  }
};

/// Ends the lending of a tensor's header room.
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

std::optional<at::Tensor> with_header_room(const at::Tensor& tensor) {
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  const bool has_room = memory.get() != nullptr && memory.get_deleter() == &HeaderRoomAllocator::free_whole;
  if (!has_room || tensor.storage_offset() != 0) return std::nullopt;
  char* room = static_cast<char*>(memory.get()) - kHeaderRoomBytes;
  if (is_lent(room)) return std::nullopt;
  set_lent(room, 1);
  const auto bytes = kHeaderRoomBytes + static_cast<std::int64_t>(tensor.nbytes());
  return at::for_blob(room, {bytes}).context(new at::Tensor(tensor), &give_back).options(at::kByte).make_tensor();
}

}  // namespace chimera
