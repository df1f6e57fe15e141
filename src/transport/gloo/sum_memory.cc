#include "transport/gloo/sum_memory.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::size_t kSmallestFile = 4096;  // one page

}  // namespace

std::shared_ptr<std::byte> MappedPeers::at(const SharedAddress& address) {
  const std::scoped_lock lock(mutex_);
  auto& memory = mapped_[{address.process, address.file}];
  if (!memory) memory = std::make_shared<SharedMemory>(address);
  std::shared_ptr<std::byte> byte(memory, memory->data() + address.offset);
  // A file stays mapped while someone holds a pointer into it.
  if (mapped_.size() > most_files_) mapped_.clear();
  return byte;
}

// Sizes are powers of two, so that tensors of similar sizes share files.
std::shared_ptr<SharedMemory> StagingMemory::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallestFile));
  std::unique_ptr<SharedMemory> memory;
  {
    const std::scoped_lock lock(shelf_->mutex);
    if (auto free = shelf_->free.extract(size)) memory = std::move(free.mapped());
  }
  if (!memory) memory = std::make_unique<SharedMemory>(size);
  // The shelf is shared, because a file may come back after the end of this object.
  const auto give_back = [shelf = shelf_, size](SharedMemory* used) {
    std::unique_ptr<SharedMemory> owned(used);
    const std::scoped_lock lock(shelf->mutex);
    shelf->free.emplace(size, std::move(owned));
  };
  return {memory.release(), give_back};
}

std::shared_lock<std::shared_mutex> SumMemory::begin_to_add() {
  std::shared_lock lock(adding_);
  if (is_closed_) throw PeerLostError("another rank was lost");
  return lock;
}

void SumMemory::close() {
  const std::lock_guard lock(adding_);
  is_closed_ = true;
}

bool can_map(const SharedAddress& address, std::int64_t mark) {
  try {
    const SharedMemory memory(address);
    std::int64_t there = 0;
    if (memory.size() < sizeof there) return false;
    std::memcpy(&there, memory.data(), sizeof there);
    return there == mark;
  } catch (const Error&) {
    return false;
  }
}

}  // namespace chimera
