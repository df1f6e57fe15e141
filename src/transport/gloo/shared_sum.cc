#include "transport/gloo/shared_sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/fault_point.h"
#include "transport/ordered_sum.h"

// SharedSum::State is the sum, a chain of steps on threads of the process groups: announce() sends addresses,
// on_gathered() adds this member's slice, start_adding_hosts() exchanges it with the other hosts if there are any, and
// start_failure_sum() is the barrier at the end. Each step starts the next from the callback of its future, and none
// waits, because a group has only one thread. Callbacks hold a shared pointer to the State, so that it outlives a
// SharedSum that was destroyed after a failure.

namespace chimera {
namespace {

constexpr std::int64_t kWords = 4;                // in the message of an address
constexpr std::int64_t kChunkBytes = 256 * 1024;  // fits into the cache
constexpr std::int64_t kLineBytes = 64;
constexpr std::size_t kSmallestFile = 4096;  // one page

static_assert(sizeof(SharedAddress) == kWords * sizeof(std::int64_t));

/// A tensor of this rank in shared memory: itself, or a copy if its memory cannot be shared.
struct Shared {
  at::Tensor own;
  std::shared_ptr<SharedMemory> copy;

  Shared(const at::Tensor& tensor, StagingMemory& staging) : own(tensor) {
    if (shared_address(own.data_ptr())) return;
    copy = staging.take(own.nbytes());
    std::memcpy(copy->data(), own.data_ptr(), own.nbytes());
  }
  [[nodiscard]] SharedAddress address() const { return copy ? copy->address() : *shared_address(own.data_ptr()); }
  void copy_back() const {
    if (copy) std::memcpy(own.data_ptr(), copy->data(), own.nbytes());
  }
};

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

struct SharedSum::State : std::enable_shared_from_this<State> {
  State(const SumGroups& groups_of_sum, std::shared_ptr<SumMemory> sum_memory, GradientSum& sum,
        std::chrono::milliseconds limit)
      : groups(groups_of_sum),
        memory(std::move(sum_memory)),
        counts(std::move(sum.counts)),
        order(sum.order),
        timeout(limit) {
    own.emplace_back(sum.gradients, memory->staging);
    if (order == nullptr) return;
    for (const at::Tensor& part : sum.parts) own.emplace_back(part, memory->staging);
    for (const auto& trees : order->parts) most_parts = std::max(most_parts, static_cast<std::int64_t>(trees.size()));
    if (order->parts.size() != static_cast<std::size_t>(groups.host->getSize()) ||
        order->parts[own_place()].size() != sum.parts.size())
      throw TransportError("a member's parts do not match the order of the sum");
  }

  const SumGroups groups;
  const std::shared_ptr<SumMemory> memory;
  const std::vector<std::int64_t> counts;  // [member]; empty: all-reduce
  const SumOrder* const order;
  const std::chrono::milliseconds timeout;
  const int fault_rank_of_owner = fault_rank();  // for fault points on the groups' threads
  std::vector<Shared> own;                       // gradients, then parts
  std::int64_t most_parts = 0;                   // most parts of a member
  std::vector<at::Tensor> addresses;             // [member]: gradients and parts
  c10::intrusive_ptr<c10d::Work> gather;         // until all members of the host have deposited
  c10::intrusive_ptr<c10d::Work> hosts_added;
  c10::intrusive_ptr<c10d::Work> added;            // until all members of the host have added
  at::Tensor failures = at::zeros({1}, at::kInt);  // whether this member failed; then how many failed
  std::exception_ptr failure;
  OperationEnd sum_end;

  /// Gathers the addresses of all members' tensors. The gather is also the barrier after which every member has
  /// deposited.
  void announce() {
    const auto size = (1 + most_parts) * kWords;
    const at::Tensor mine = at::zeros({size}, at::kLong);
    auto* words = mine.data_ptr<std::int64_t>();
    for (const Shared& tensor : own) {
      const SharedAddress address = tensor.address();
      // Members may have different numbers of parts, but an all-gather needs equal sizes: unused words stay 0.
      std::memcpy(std::exchange(words, words + kWords), &address, sizeof address);
    }
    gather = start_gather(*groups.host, mine, timeout, addresses);
  }

  [[nodiscard]] at::Tensor tensor(std::size_t member, std::size_t index) const {
    const at::Tensor& gradients = own.front().own;
    const std::int64_t* words = addresses[member].const_data_ptr<std::int64_t>();
    SharedAddress address;
    std::memcpy(static_cast<void*>(&address), words + static_cast<std::int64_t>(index) * kWords, sizeof address);
    const auto data = memory->peers.at(address);
    return at::from_blob(
        data.get(), gradients.sizes(), [data](void*) {}, gradients.options());
  }

  /// Runs `step` of the sum on a group's thread. If it throws, no member may use the sum.
  template <class Step>
  void run_step(const Step& step) noexcept {
    try {
      const c10::ParallelGuard one_thread(true);
      const at::NoGradGuard no_grad;
      fault_rank() = fault_rank_of_owner;
      if (step()) return;  // another step follows
    } catch (...) {
      failure = std::current_exception();
      *failures.data_ptr<int>() = 1;
    }
    start_failure_sum();
  }

  /// Called once the host's members have deposited or one failed, on any thread. Must not block.
  void on_gathered(bool has_failed) noexcept {
    if (has_failed) return sum_end.end(false);
    run_step([&] {
      fault_point("sum");
      Slice own_slice = add();
      const bool adds_hosts = groups.counterparts && own_slice.num_elements() > 0;
      if (adds_hosts) start_adding_hosts(std::move(own_slice));
      return adds_hosts;
    });
  }

  /// Every member may write to all members' gradients, so no member may use or change its own before all have added.
  /// The sum over the members' failures is that barrier, and tells all whether the sum is valid.
  void start_failure_sum() noexcept {
    try {
      std::vector<at::Tensor> sum{failures};
      added = groups.host->allreduce(sum, with_timeout<c10d::AllreduceOptions>(timeout));
      added->getFuture()->addCallback(
          [self = shared_from_this()](c10::ivalue::Future& sums) { self->sum_end.end(!sums.hasError()); });
    } catch (...) {
      failure = std::current_exception();
      sum_end.end(false);
    }
  }

  struct Range {
    std::int64_t first = 0;
    std::int64_t end = 0;
    [[nodiscard]] std::int64_t size() const { return end - first; }
    [[nodiscard]] at::Tensor of(const at::Tensor& tensor) const { return tensor.narrow(0, first, size()); }
  };

  /// Slice that this member adds.
  struct Slice {
    std::vector<at::Tensor> sums;                // [member]: gradients
    std::vector<std::vector<at::Tensor>> parts;  // [member]
    std::vector<Range> ranges;                   // one per host in a reduce-scatter over hosts, else one
    std::int64_t chunk = 0;                      // elements

    [[nodiscard]] std::int64_t num_elements() const {
      std::int64_t elements = 0;
      for (const Range& range : ranges) elements += range.size();
      return elements;
    }
    template <class Use>
    void for_each_chunk(const Use& use) const {
      for (const Range& range : ranges)
        for (std::int64_t at = range.first; at < range.end; at += chunk) use(at, std::min(chunk, range.end - at));
    }
  };

  [[nodiscard]] Slice slice() const {
    Slice slice;
    const auto members = static_cast<std::size_t>(groups.host->getSize());
    for (std::size_t member = 0; member < members; ++member) {
      slice.sums.push_back(tensor(member, 0));
      auto& of_member = slice.parts.emplace_back();
      const std::size_t count = order == nullptr ? 0 : order->parts[member].size();
      for (std::size_t i = 0; i < count; ++i) of_member.push_back(tensor(member, 1 + i));
    }
    const auto size = static_cast<std::int64_t>(slice.sums.front().element_size());
    slice.ranges = counts.empty() ? std::vector{equal_range(slice.sums.front())} : kept_ranges();
    slice.chunk = kChunkBytes / size;
    return slice;
  }

  /// Slices begin at cache lines: two members that write to one line would slow each other down.
  [[nodiscard]] Range equal_range(const at::Tensor& whole) const {
    // Rounded up to whole lines, so that the last slice is the shortest, and may be empty.
    const std::int64_t line = kLineBytes / static_cast<std::int64_t>(whole.element_size());
    const std::int64_t length = (whole.numel() / groups.host->getSize() + line) / line * line;
    const std::int64_t first = std::min(whole.numel(), groups.host->getRank() * length);
    return {first, std::min(whole.numel(), first + length)};
  }

  /// Returns the ranges of this member and its counterparts.
  [[nodiscard]] std::vector<Range> kept_ranges() const {
    std::vector<Range> ranges;
    const auto add = [&](std::size_t place) {
      const auto end = counts.begin() + static_cast<std::ptrdiff_t>(place);
      const std::int64_t first = std::accumulate(counts.begin(), end, std::int64_t{0});
      ranges.push_back({first, first + counts[place]});
    };
    // With several hosts, this member also adds what its counterparts keep, and sends it to them afterwards.
    if (!groups.counterparts) add(own_place());
    for (const std::size_t place : groups.places_of_sum) add(place);
    return ranges;
  }
  [[nodiscard]] std::size_t own_place() const { return static_cast<std::size_t>(groups.host->getRank()); }

  [[nodiscard]] Slice add() const {
    const auto adding = memory->begin_to_add();
    Slice own_slice = slice();
    own_slice.for_each_chunk([&](std::int64_t first, std::int64_t count) {
      const at::Tensor sum = sum_of_chunk(own_slice, first, count);
      if (!groups.counterparts) write_to_members(sum, own_slice, first, count);
    });
    return own_slice;
  }

  void start_adding_hosts(Slice slice) {
    if (!counts.empty()) return start_scattering(slice);
    std::vector<at::Tensor> sum{slice.ranges.front().of(slice.sums.front())};
    hosts_added = groups.counterparts->allreduce(sum, with_timeout<c10d::AllreduceOptions>(timeout));
    after_hosts([this, slice = std::move(slice)] {
      slice.for_each_chunk([&](std::int64_t first, std::int64_t count) {
        write_to_members(slice.sums.front().narrow(0, first, count), slice, first, count);
      });
    });
  }

  /// Sends each host the elements that its counterpart keeps, and adds what arrives in ascending order of hosts.
  void start_scattering(const Slice& slice) {
    const Range& kept = slice.ranges[static_cast<std::size_t>(groups.counterparts->getRank())];
    std::vector<at::Tensor> pieces;
    std::vector<std::int64_t> sent;
    for (const Range& range : slice.ranges) {
      pieces.push_back(range.of(slice.sums.front()));
      sent.push_back(range.size());
    }
    std::vector<std::int64_t> received(slice.ranges.size(), kept.size());
    at::Tensor outgoing = at::cat(pieces);
    at::Tensor arrived = at::empty({std::ssize(received) * kept.size()}, outgoing.options());
    hosts_added = groups.counterparts->alltoall_base(arrived, outgoing, received, sent,
                                                     with_timeout<c10d::AllToAllOptions>(timeout));
    after_hosts([this, outgoing, arrived, target = kept.of(slice.sums[own_place()])] {
      if (target.numel() == 0) return;
      const std::vector<at::Tensor> sums = arrived.chunk(groups.counterparts->getSize());
      target.copy_(sums.front());
      for (std::size_t host = 1; host < sums.size(); ++host) target.add_(sums[host]);
    });
  }

  /// Runs `add_last` once the exchange with the other hosts is complete.
  template <class Add>
  void after_hosts(Add add_last) {
    hosts_added->getFuture()->addCallback(
        [self = shared_from_this(), add_last = std::move(add_last)](c10::ivalue::Future& exchange) {
          self->run_step([&] {
            if (exchange.hasError()) std::rethrow_exception(exchange.exception_ptr());
            const auto adding = self->memory->begin_to_add();
            add_last();
            return false;
          });
        });
  }

  /// Adds chunk by chunk, since a chunk of all members fits into the cache. The order of additions is that of whole
  /// slices.
  [[nodiscard]] at::Tensor sum_of_chunk(const Slice& slice, std::int64_t first, std::int64_t count) const {
    const auto cut = [&](const at::Tensor& tensor) { return tensor.narrow(0, first, count); };
    if (order == nullptr) {
      at::Tensor sum = cut(slice.sums.front());
      for (std::size_t member = 1; member < slice.sums.size(); ++member) sum.add_(cut(slice.sums[member]));
      return sum;
    }
    std::vector<std::vector<at::Tensor>> chunks;
    for (const auto& of_member : slice.parts) {
      auto& cuts = chunks.emplace_back();
      for (const at::Tensor& part : of_member) cuts.push_back(cut(part));
    }
    return add_in_order(*order, chunks);
  }

  void write_to_members(const at::Tensor& sum, const Slice& slice, std::int64_t first, std::int64_t count) const {
    for (std::size_t member = 0; member < slice.sums.size(); ++member) {
      // In a reduce-scatter only this member keeps its slice.
      if (!counts.empty() && member != own_place()) continue;
      const at::Tensor& gradients = slice.sums[member];
      at::Tensor target = gradients.narrow(0, first, count);
      if (target.data_ptr() != sum.data_ptr()) target.copy_(sum);
    }
  }
};

SharedSum::SharedSum(const SumGroups& groups, std::shared_ptr<SumMemory> memory, GradientSum sum,
                     std::chrono::milliseconds timeout)
    : state_(std::make_shared<State>(groups, std::move(memory), sum, timeout)) {
  state_->announce();
  fault_point("handed-in");
  state_->gather->getFuture()->addCallback(
      [state = state_](c10::ivalue::Future& gather) { state->on_gathered(gather.hasError()); });
}

void SharedSum::wait() {
  State& state = *state_;
  state.sum_end.await(state.timeout, state.memory->breaker.get());
  wait_for(*state.gather, state.timeout);
  // A lost peer's error comes first: it may be why mapping the peer's memory failed.
  if (state.hosts_added) wait_for(*state.hosts_added, state.timeout);
  if (state.added) wait_for(*state.added, state.timeout);
  if (state.failure) std::rethrow_exception(state.failure);
  if (*state.failures.data_ptr<int>() > 0) throw PeerLostError("another member could not add its part of the sum");
  state.own.front().copy_back();
}

// Without an end yet, OperationEnd calls `done`. After it, only a sum that has succeeded may call it.
void SharedSum::call_when_done(std::function<void()> done) {
  State& state = *state_;
  if (state.sum_end.call_when_done(done)) return;
  if (state.added && !state.added->getFuture()->hasError()) done();
}

}  // namespace chimera
