#include "transport/gloo/op_sum.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstring>
#include <ctime>
#include <thread>
#include <utility>

#include "core/error.h"

namespace chimera {
namespace {

constexpr std::size_t kFirstSlot = 64;               // a cache line, so that slots are aligned
constexpr std::size_t kMinSlotBytes = 64 * 1024;     // small sums do not make new slots again and again
constexpr std::int64_t kSumChunkBytes = 256 * 1024;  // fits into the cache
constexpr int kYields = 200;                         // before a sleep: peers are usually a few microseconds apart
constexpr long kSleepNanoseconds = 50'000'000;       // between looks at whether the peer still lives

long futex(std::atomic<std::uint32_t>& word, int operation, std::uint32_t value, const timespec* limit) {
  return ::syscall(SYS_futex, &word, operation, value, limit, nullptr, 0);
}

}  // namespace

/// A member's memory: a header, then two slots.
struct OpSum::Slots {
  struct Header {
    std::atomic<std::uint32_t> turn;  // of the last sum whose values are in a slot
    std::atomic<std::uint32_t> has_ended;
  };
  static_assert(sizeof(Header) <= kFirstSlot && std::atomic<std::uint32_t>::is_always_lock_free);

  template <class Source>
  explicit Slots(const Source& source) : memory(source) {}

  [[nodiscard]] Header& header() const { return *reinterpret_cast<Header*>(memory.data()); }
  [[nodiscard]] std::byte* slot(std::uint32_t turn, std::size_t bytes) const {
    return memory.data() + kFirstSlot + turn % 2 * bytes;
  }
  void wake() const { futex(header().turn, FUTEX_WAKE, INT_MAX, nullptr); }

  SharedMemory memory;
  std::int64_t process = 0;
};

OpSum::OpSum(GlooGroup members, std::shared_ptr<ConnectionBreaker> breaker)
    : members_(std::move(members)), breaker_(std::move(breaker)) {}

OpSum::~OpSum() {
  if (slots_.empty()) return;
  const Slots& own = *slots_[static_cast<std::size_t>(members_->getRank())];
  own.header().has_ended = 1;
  own.wake();
}

/// All members need larger slots in the same sum, so they exchange the addresses then.
void OpSum::make_slots(std::size_t bytes, std::chrono::milliseconds timeout) {
  slot_bytes_ = std::bit_ceil(std::max(bytes, kMinSlotBytes));
  // Turns begin anew in the new slots, on all members in the same sum.
  turn_ = 0;
  auto own = std::make_unique<Slots>(kFirstSlot + 2 * slot_bytes_);
  const SharedAddress address = own->memory.address();
  const at::Tensor mine = at::tensor({address.process, address.descriptor, address.file}, at::kLong);
  std::vector<at::Tensor> all;
  wait_for_collective(*start_gather(*members_, mine, timeout, all), timeout, breaker_.get());
  std::vector<std::unique_ptr<Slots>> slots;
  for (int member = 0; member < members_->getSize(); ++member) {
    const auto* word = all[static_cast<std::size_t>(member)].const_data_ptr<std::int64_t>();
    slots.push_back(member == members_->getRank() ? std::move(own)
                                                  : std::make_unique<Slots>(SharedAddress{word[0], word[1], word[2]}));
    slots.back()->process = word[0];
  }
  slots_ = std::move(slots);
}

void OpSum::await(std::size_t member, std::chrono::milliseconds timeout) const {
  const Slots& peer = *slots_[member];
  const auto has_arrived = [&] {
    // The difference is signed, so that turns may wrap around, and a peer may be a turn ahead.
    return static_cast<std::int32_t>(peer.header().turn.load(std::memory_order_acquire) - turn_) >= 0;
  };
  for (int i = 0; i < kYields; ++i) {
    if (has_arrived()) return;
    std::this_thread::yield();
  }
  const auto end = std::chrono::steady_clock::now() + timeout;
  while (!has_arrived()) {
    // The kernel sleeps only if the word still has this value, so a turn that comes now is not missed.
    const std::uint32_t seen = peer.header().turn.load(std::memory_order_acquire);
    if (has_arrived()) return;
    const bool is_lost =
        peer.header().has_ended != 0 || (::kill(static_cast<pid_t>(peer.process), 0) != 0 && errno == ESRCH);
    if (is_lost) throw PeerLostError(fmt::format("member {} has ended", member));
    if (breaker_ && breaker_->is_broken()) throw PeerLostError("connections were broken");
    if (std::chrono::steady_clock::now() > end) throw TransportError(fmt::format("member {} did not come", member));
    const timespec limit{.tv_sec = 0, .tv_nsec = kSleepNanoseconds};
    futex(peer.header().turn, FUTEX_WAIT, seen, &limit);
  }
}

std::vector<at::Tensor> OpSum::exchange(const at::Tensor& values, std::chrono::milliseconds timeout) {
  if (slots_.empty() || values.nbytes() > slot_bytes_) make_slots(values.nbytes(), timeout);
  ++turn_;
  const auto own = static_cast<std::size_t>(members_->getRank());
  std::memcpy(slots_[own]->slot(turn_, slot_bytes_), values.const_data_ptr(), values.nbytes());
  slots_[own]->header().turn.store(turn_, std::memory_order_release);
  slots_[own]->wake();
  std::vector<at::Tensor> parts;  // [member]
  for (std::size_t member = 0; member < slots_.size(); ++member) {
    if (member != own) await(member, timeout);
    parts.push_back(at::from_blob(slots_[member]->slot(turn_, slot_bytes_), values.sizes(), values.options()));
  }
  return parts;
}

void OpSum::add(const at::Tensor& values, std::chrono::milliseconds timeout) {
  const at::NoGradGuard no_grad;
  const std::vector<at::Tensor> parts = exchange(values, timeout);
  const std::int64_t chunk = kSumChunkBytes / static_cast<std::int64_t>(values.element_size());
  for (std::int64_t first = 0; first < values.numel(); first += chunk) {
    const std::int64_t count = std::min(chunk, values.numel() - first);
    at::Tensor sum = values.narrow(0, first, count);
    // The first addition writes into `values`, whose own content is already in this member's slot.
    at::add_out(sum, parts[0].narrow(0, first, count), parts[1].narrow(0, first, count));
    for (std::size_t member = 2; member < parts.size(); ++member) sum.add_(parts[member].narrow(0, first, count));
  }
}

}  // namespace chimera
