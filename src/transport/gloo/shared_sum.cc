#include "transport/gloo/shared_sum.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>

#include <algorithm>
#include <bit>
#include <condition_variable>
#include <cstring>
#include <exception>
#include <numeric>
#include <utility>

#include "core/error.h"
#include "core/fault_point.h"
#include "transport/ordered_sum.h"

namespace chimera {
namespace {

constexpr std::int64_t kWords = 4;                // words of a SharedAddress
constexpr std::int64_t kChunkBytes = 256 * 1024;  // fits into the cache
constexpr std::int64_t kLineBytes = 64;
constexpr std::size_t kSmallestFile = 4096;  // one page

void write(const SharedAddress& address, std::int64_t* words) {
  words[0] = address.process;
  words[1] = address.descriptor;
  words[2] = address.file;
  words[3] = address.offset;
}

SharedAddress read(const std::int64_t* words) { return {words[0], words[1], words[2], words[3]}; }

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
  const std::pair key(address.process, address.file);
  auto found = mapped_.find(key);
  if (found == mapped_.end()) {
    found = mapped_.emplace(key, Mapping{std::make_shared<SharedMemory>(address)}).first;
  }
  auto& [memory, last_use] = found->second;
  last_use = ++uses_;
  std::shared_ptr<std::byte> byte(memory, memory->data() + address.offset);
  if (mapped_.size() > most_files_) forget_the_oldest();
  return byte;
}

void MappedPeers::forget_the_oldest() {
  mapped_.erase(std::ranges::min_element(mapped_, {}, [](const auto& entry) { return entry.second.last_use; }));
}

std::shared_ptr<SharedMemory> StagingMemory::take(std::size_t bytes) {
  const std::size_t size = std::bit_ceil(std::max(bytes, kSmallestFile));
  std::unique_ptr<SharedMemory> memory;
  {
    const std::scoped_lock lock(shelf_->mutex);
    if (auto free = shelf_->free.extract(size)) memory = std::move(free.mapped());
    if (!memory) ++shelf_->num_files;
  }
  if (!memory) memory = std::make_unique<SharedMemory>(size);
  const auto give_back = [shelf = shelf_, size](SharedMemory* used) {
    std::unique_ptr<SharedMemory> owned(used);
    const std::scoped_lock lock(shelf->mutex);
    shelf->free.emplace(size, std::move(owned));
  };
  return {memory.release(), give_back};
}

std::size_t StagingMemory::num_files() const {
  const std::scoped_lock lock(shelf_->mutex);
  return shelf_->num_files;
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

std::vector<bool> mappable(const std::vector<MarkedMemory>& memories) {
  std::vector<bool> found;
  for (const auto& [address, mark] : memories) {
    try {
      const SharedMemory memory(address);
      std::int64_t there = 0;
      const bool has_room = memory.size() >= sizeof there;
      if (has_room) std::memcpy(&there, memory.data(), sizeof there);
      found.push_back(has_room && there == mark);
    } catch (const Error&) {
      found.push_back(false);
    }
  }
  return found;
}

struct SharedSum::State : std::enable_shared_from_this<State> {
  GlooGroup group;         // members on this host
  GlooGroup counterparts;  // null: one host
  std::shared_ptr<SumMemory> memory;
  std::vector<std::size_t> places_of_sum;  // as in SumGroups
  std::vector<std::int64_t> counts;        // [member]; empty: all-reduce
  int fault_rank = 0;                      // for fault points on the groups' threads
  const SumOrder* order = nullptr;
  std::vector<Shared> own;                // gradients, then parts
  std::int64_t most_parts = 0;            // most parts of a member
  std::vector<at::Tensor> addresses;      // [member]: gradients and parts
  c10::intrusive_ptr<c10d::Work> gather;  // until all members of the host have deposited
  c10::intrusive_ptr<c10d::Work> hosts_added;
  c10::intrusive_ptr<c10d::Work> added;  // until all members of the host have added
  at::Tensor failures;                   // [1]: whether this member failed; then how many failed
  std::exception_ptr failure;
  std::chrono::milliseconds timeout{};

  std::mutex mutex;  // guards the members below
  std::condition_variable news;
  std::vector<std::function<void()>> when_done;
  bool is_over = false;
  bool is_aborted = false;

  void announce() {
    const auto size = (1 + most_parts) * kWords;
    std::vector<at::Tensor> mine{at::zeros({size}, at::kLong)};
    auto* words = mine.front().data_ptr<std::int64_t>();
    for (std::size_t i = 0; i < own.size(); ++i) write(own[i].address(), words + static_cast<std::int64_t>(i) * kWords);
    std::vector<std::vector<at::Tensor>> all(1);
    for (int member = 0; member < group->getSize(); ++member) all.front().push_back(at::empty_like(mine.front()));
    addresses = all.front();
    c10d::AllgatherOptions options;
    options.timeout = timeout;
    gather = group->allgather(all, mine, options);
  }

  [[nodiscard]] at::Tensor tensor(std::size_t member, std::size_t index) const {
    const at::Tensor& gradients = own.front().own;
    const std::int64_t* words = addresses[member].const_data_ptr<std::int64_t>();
    const auto data = memory->peers.at(read(words + static_cast<std::int64_t>(index) * kWords));
    return at::from_blob(
        data.get(), gradients.sizes(), [data](void*) {}, gradients.options());
  }

  /// Runs once the host's members have deposited or one failed, on any thread. Must not block.
  void on_gathered(bool has_failed) noexcept {
    if (has_failed) return end();
    try {
      const c10::ParallelGuard one_thread(true);
      set_fault_rank(fault_rank);
      fault_point("sum");
      const at::NoGradGuard no_grad;
      Slice own_slice = add();
      if (counterparts && own_slice.num_elements() > 0) return start_adding_hosts(std::move(own_slice));
    } catch (...) {
      note_failure();
    }
    start_failure_sum();
  }

  void note_failure() noexcept {
    failure = std::current_exception();
    *failures.data_ptr<int>() = 1;  // no member may use the sum
  }

  void start_failure_sum() noexcept {
    try {
      std::vector<at::Tensor> sum{failures};
      added = group->allreduce(sum, all_reduce_options());
      added->getFuture()->addCallback([self = shared_from_this()](c10::ivalue::Future&) { self->end(); });
    } catch (...) {
      failure = std::current_exception();
      end();
    }
  }

  void end() noexcept {
    std::unique_lock lock(mutex);
    while (!when_done.empty()) {
      const auto calls = std::exchange(when_done, {});
      lock.unlock();
      if (added && !added->getFuture()->hasError()) {
        for (const auto& done : calls) done();
      }
      lock.lock();
    }
    is_over = true;
    news.notify_all();
  }

  /// Throws on timeout, or if `breaker` (may be null) breaks the connections.
  void await_end(ConnectionBreaker* breaker) {
    const ConnectionBreaker::Wait wait(breaker, [self = shared_from_this()] {
      const std::lock_guard lock(self->mutex);
      self->is_aborted = true;
      self->news.notify_all();
    });
    std::unique_lock lock(mutex);
    const auto has_ended = [&] { return is_over || is_aborted; };
    if (!news.wait_for(lock, timeout, has_ended)) throw std::runtime_error("Timed out");
    if (!is_over) throw std::runtime_error("aborted");
  }

  [[nodiscard]] c10d::AllreduceOptions all_reduce_options() const {
    c10d::AllreduceOptions options;
    options.timeout = timeout;
    return options;
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
      for (const Range& range : ranges) {
        for (std::int64_t at = range.first; at < range.end; at += chunk) use(at, std::min(chunk, range.end - at));
      }
    }
  };

  [[nodiscard]] Slice slice() const {
    Slice slice;
    const auto members = static_cast<std::size_t>(group->getSize());
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

  [[nodiscard]] Range equal_range(const at::Tensor& whole) const {
    const std::int64_t line = kLineBytes / static_cast<std::int64_t>(whole.element_size());
    const std::int64_t length = (whole.numel() / group->getSize() + line) / line * line;
    const std::int64_t first = std::min(whole.numel(), group->getRank() * length);
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
    if (!counterparts) add(own_place());
    for (const std::size_t place : places_of_sum) add(place);
    return ranges;
  }
  [[nodiscard]] std::size_t own_place() const { return static_cast<std::size_t>(group->getRank()); }

  [[nodiscard]] Slice add() const {
    const auto adding = memory->begin_to_add();
    Slice own_slice = slice();
    own_slice.for_each_chunk([&](std::int64_t first, std::int64_t count) {
      const at::Tensor sum = sum_of_chunk(own_slice, first, count);
      if (!counterparts) write_to_members(sum, own_slice, first, count);
    });
    return own_slice;
  }

  void start_adding_hosts(Slice slice) {
    if (!counts.empty()) return start_scattering(slice);
    std::vector<at::Tensor> sum{slice.ranges.front().of(slice.sums.front())};
    hosts_added = counterparts->allreduce(sum, all_reduce_options());
    hosts_added->getFuture()->addCallback([self = shared_from_this(), slice = std::move(slice)](
                                              c10::ivalue::Future& sums) { self->on_hosts_added(sums, slice); });
  }

  void on_hosts_added(c10::ivalue::Future& sums, const Slice& slice) noexcept {
    try {
      if (sums.hasError()) std::rethrow_exception(sums.exception_ptr());
      const c10::ParallelGuard one_thread(true);
      const at::NoGradGuard no_grad;
      const auto adding = memory->begin_to_add();
      slice.for_each_chunk([&](std::int64_t first, std::int64_t count) {
        write_to_members(slice.sums.front().narrow(0, first, count), slice, first, count);
      });
    } catch (...) {
      note_failure();
    }
    start_failure_sum();
  }

  void start_scattering(const Slice& slice) {
    const auto host = static_cast<std::size_t>(counterparts->getRank());
    const Range& kept = slice.ranges[host];
    std::vector<at::Tensor> pieces;
    std::vector<std::int64_t> sent;
    for (const Range& range : slice.ranges) {
      pieces.push_back(range.of(slice.sums.front()));
      sent.push_back(range.size());
    }
    std::vector<std::int64_t> received(slice.ranges.size(), kept.size());
    at::Tensor outgoing = at::cat(pieces);
    at::Tensor arrived = at::empty({std::ssize(received) * kept.size()}, outgoing.options());
    c10d::AllToAllOptions options;
    options.timeout = timeout;
    hosts_added = counterparts->alltoall_base(arrived, outgoing, received, sent, options);
    hosts_added->getFuture()->addCallback([self = shared_from_this(), outgoing, arrived,
                                           target = kept.of(slice.sums[own_place()])](c10::ivalue::Future& sums) {
      self->on_hosts_sent(sums, arrived, target);
    });
  }

  void on_hosts_sent(c10::ivalue::Future& sent, const at::Tensor& arrived, const at::Tensor& target) noexcept {
    try {
      if (sent.hasError()) std::rethrow_exception(sent.exception_ptr());
      const c10::ParallelGuard one_thread(true);
      const at::NoGradGuard no_grad;
      const auto adding = memory->begin_to_add();
      const std::vector<at::Tensor> sums = arrived.chunk(counterparts->getSize());
      if (target.numel() > 0) target.copy_(sums.front());
      for (std::size_t host = 1; host < sums.size() && target.numel() > 0; ++host) target.add_(sums[host]);
    } catch (...) {
      note_failure();
    }
    start_failure_sum();
  }

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
      if (!counts.empty() && member != own_place()) continue;
      const at::Tensor& gradients = slice.sums[member];
      at::Tensor target = gradients.narrow(0, first, count);
      if (target.data_ptr() != sum.data_ptr()) target.copy_(sum);
    }
  }
};

SharedSum::SharedSum(const SumGroups& groups, std::shared_ptr<SumMemory> memory, const at::Tensor& gradients,
                     const std::vector<at::Tensor>& parts, const SumOrder* order, std::chrono::milliseconds timeout,
                     std::vector<std::int64_t> counts)
    : state_(std::make_shared<State>()) {
  State& state = *state_;
  state.group = groups.host;
  state.counterparts = groups.counterparts;
  state.places_of_sum = groups.places_of_sum;
  state.counts = std::move(counts);
  state.memory = std::move(memory);
  state.fault_rank = fault_rank();
  state.order = order;
  state.timeout = timeout;
  state.own.emplace_back(gradients, state.memory->staging);
  for (const at::Tensor& part : parts) state.own.emplace_back(part, state.memory->staging);
  if (order != nullptr) {
    for (const auto& trees : order->parts) {
      state.most_parts = std::max(state.most_parts, static_cast<std::int64_t>(trees.size()));
    }
    if (order->parts.size() != static_cast<std::size_t>(state.group->getSize()) ||
        order->parts[static_cast<std::size_t>(state.group->getRank())].size() != parts.size()) {
      throw TransportError("a member's parts do not match the order of the sum");
    }
  }
  state.failures = at::zeros({1}, at::kInt);
  state.announce();
  fault_point("handed-in");
  state.gather->getFuture()->addCallback(
      [shared = state_](c10::ivalue::Future& gather) { shared->on_gathered(gather.hasError()); });
}

void SharedSum::wait() {
  State& state = *state_;
  state.await_end(state.memory->breaker.get());
  wait_for(*state.gather, state.timeout);
  // A lost peer's error comes first: it may be why mapping the peer's memory failed.
  if (state.hosts_added) wait_for(*state.hosts_added, state.timeout);
  if (state.added) wait_for(*state.added, state.timeout);
  if (state.failure) std::rethrow_exception(state.failure);
  if (*state.failures.data_ptr<int>() > 0) throw PeerLostError("another member could not add its part of the sum");
  state.own.front().copy_back();
}

void SharedSum::call_when_done(std::function<void()> done) {
  State& state = *state_;
  {
    const std::lock_guard lock(state.mutex);
    if (!state.is_over) return state.when_done.push_back(std::move(done));
  }
  if (state.added && !state.added->getFuture()->hasError()) done();
}

}  // namespace chimera
