#include "transport/headroom.h"

#include <ATen/Functions.h>
#include <c10/core/CPUAllocator.h>

#include <cstring>

namespace chimera {
namespace {

/// In the first bytes of the headroom while a result of with_headroom is alive, and 0 otherwise.
using Lent = std::uint64_t;

void set_lent(void* headroom, Lent lent) { std::memcpy(headroom, &lent, sizeof lent); }

bool is_lent(const void* headroom) {
  Lent lent = 0;
  std::memcpy(&lent, headroom, sizeof lent);
  return lent != 0;
}

/// The memory of another allocator, entered kHeadroomBytes late: freed as that allocator frees it.
class HeadroomAllocator final : public c10::Allocator {
 public:
  explicit HeadroomAllocator(c10::Allocator& memory) : memory_(memory) {}

  c10::DataPtr allocate(std::size_t size) override {
    if (size == 0) return memory_.allocate(0);
    c10::DataPtr whole = memory_.allocate(size + static_cast<std::size_t>(kHeadroomBytes));
    auto* begin = static_cast<char*>(whole.get());
    set_lent(begin, 0);
    const auto free = whole.get_deleter();
    const auto device = whole.device();
    return {begin + kHeadroomBytes, whole.release_context(), free, device};
  }
  void copy_data(void* to, const void* from, std::size_t size) const override { default_copy_data(to, from, size); }

 private:
  c10::Allocator& memory_;
};

}  // namespace

void leave_headroom() {
  static HeadroomAllocator allocator(*c10::GetDefaultCPUAllocator());
  static const bool once = (c10::SetCPUAllocator(&allocator, /*priority=*/1), true);
  static_cast<void>(once);
}

std::optional<at::Tensor> with_headroom(const at::Tensor& tensor) {
  const c10::DataPtr& memory = tensor.storage().data_ptr();
  auto* headroom = static_cast<char*>(memory.get_context());
  const bool has_room = headroom != nullptr && headroom + kHeadroomBytes == memory.get() &&
                        memory.get_deleter() == c10::GetDefaultCPUAllocator()->raw_deleter();
  if (!has_room || tensor.storage_offset() != 0 || is_lent(headroom)) return std::nullopt;
  set_lent(headroom, 1);
  const auto give_back = [tensor](void* lent) { set_lent(lent, 0); };
  return at::from_blob(headroom, {kHeadroomBytes + static_cast<std::int64_t>(tensor.nbytes())}, give_back, at::kByte);
}

}  // namespace chimera
