#include "transport/pairs/pair_transport.h"

#include <ATen/ATen.h>
#include <ATen/Context.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <type_traits>

#include "core/error.h"
#include "transport/groups.h"
#include "transport/ordered_sum.h"
#include "transport/slice_exchange.h"
#include "transport/stream.h"

// Starter guards every start of an operation against a concurrent abort. The Pending objects make only the stream wait.
// PairTransport issues operations on the communicators, and connects all of them first. With a breaker, numbers that
// the ranks sum carry confirmations: the device copies `intact_` behind all earlier work, so a rank that has aborted
// its groups before cannot send the number that the others expect.

namespace chimera {
namespace {

using Group = Communicators::Group;

/// Starts operations of groups. No operation starts during or after an abort: NCCL does not allow it.
class Starter {
 public:
  explicit Starter(std::shared_ptr<ConnectionBreaker> breaker) : breaker_(std::move(breaker)) {}
  /// Calls `start`. Throws PeerLostError if the connections are broken.
  template <class Start>
  std::invoke_result_t<Start> operator()(Start&& start) {
    const std::lock_guard lock(mutex_);
    require_connections();
    return start();
  }
  /// Calls `abort`, on any thread. Waits at most a second for a running start, which may itself wait for a lost rank.
  void abort(const std::function<void()>& abort) {
    const std::unique_lock lock(mutex_, std::chrono::seconds(1));
    abort();
  }
  [[nodiscard]] bool is_broken() const { return breaker_ && breaker_->is_broken(); }
  void require_connections() const {
    if (is_broken()) throw PeerLostError("connections were broken");
  }

 private:
  std::shared_ptr<ConnectionBreaker> breaker_;  // may be null
  std::timed_mutex mutex_;
};

/// Returns the tensors of all members, which have one size and type. Blocks.
std::vector<at::Tensor> gather(Starter& starts, c10d::Backend& group, const at::Tensor& own) {
  std::vector<at::Tensor> mine{own};
  // c10d wants a list for each device of this process; there is one.
  std::vector<std::vector<at::Tensor>> all(1);
  for (int member = 0; member < group.getSize(); ++member) all.front().push_back(at::empty_like(own));
  starts([&] { return group.allgather(all, mine); })->wait();
  return std::move(all.front());
}

/// Rethrows c10d's errors as TransportErrors with the operation: "rank 1: send to rank 0".
template <class Action>
std::invoke_result_t<Action> guarded(const std::string& operation, Action&& action) {
  const auto message = [&](const c10::Error& error) { return fmt::format("{}: {}", operation, error_line(error)); };
  try {
    return action();
  } catch (const c10::DistBackendError& error) {
    throw PeerLostError(message(error));
  } catch (const c10::Error& error) {
    throw TransportError(message(error));
  } catch (const PeerLostError& error) {
    throw PeerLostError(fmt::format("{}: {}", operation, error.what()));
  } catch (const Error& error) {
    throw TransportError(fmt::format("{}: {}", operation, error.what()));
  }
}

/// Returns a view that keeps `tensor` alive, for c10d's send() and recv(). These call recordStream(), after which
/// CUDA's allocator reuses the memory only once the device has passed the transfer, and not during a capture. The host
/// is up to a step ahead. The allocator ignores foreign memory (CUDACachingAllocator, recordStream); PendingWorks keeps
/// the tensor until the current stream waits.
at::Tensor without_stream_record(const at::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .deleter([tensor](void* /*data*/) {})
      .options(tensor.options())
      .target_device(tensor.device())
      .make_tensor();
}

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

class PendingWorks final : public Pending {
 public:
  /// Keeps `kept` until the wait.
  PendingWorks(std::string operation, Works works, at::Tensor result, at::Tensor kept = {})
      : operation_(std::move(operation)),
        works_(std::move(works)),
        result_(std::move(result)),
        kept_(std::move(kept)) {}

  at::Tensor wait() override {
    guarded(operation_, [&] {
      for (const auto& work : works_)
        if (!work->wait()) throw TransportError("aborted");
    });
    return result_;
  }

 private:
  std::string operation_;
  Works works_;
  at::Tensor result_;
  at::Tensor kept_;
};

/// All-reduce, or with `counts` reduce-scatter. Adds the slices in wait(), which does not block the thread on a device
/// with streams.
class OrderedSum final : public Pending {
 public:
  OrderedSum(std::string operation, Starter& starts, Group group, const GradientSum& sum)
      : operation_(std::move(operation)),
        starts_(starts),
        group_(std::move(group)),
        gradients_(sum.gradients),
        scatters_(sum.scatters()),
        exchange_(*group_, sum) {}

  at::Tensor wait() override {
    return guarded(operation_, [&] {
      if (!exchange_.work().wait()) throw TransportError("aborted");
      if (scatters_)
        exchange_.own_slice(gradients_).copy_(exchange_.add());
      else
        all_gather(exchange_.add());
      return gradients_;
    });
  }

 private:
  /// c10d needs equal parts: shorter ones are padded with zeros.
  void all_gather(const at::Tensor& own_sum) {
    const auto& counts = exchange_.counts();
    const at::Tensor mine = at::zeros({counts.front()}, own_sum.options());
    mine.narrow(0, 0, own_sum.numel()).copy_(own_sum);
    const std::vector<at::Tensor> all = gather(starts_, *group_, mine);
    std::int64_t offset = 0;
    for (std::size_t member = 0; member < counts.size(); offset += counts[member++])
      gradients_.narrow(0, offset, counts[member]).copy_(all[member].narrow(0, 0, counts[member]));
  }

  std::string operation_;
  Starter& starts_;
  Group group_;
  at::Tensor gradients_;
  bool scatters_;
  SliceExchange exchange_;
};

/// Makes matrix products leave multiprocessors free. Only cuBLASLt reads the number (CUDABlas.cpp, gemm_and_bias,
/// bgemm_internal_cublaslt), so all products go through it; by default only those with a bias do. Keeps a number that
/// the user has set.
class Carveout {
 public:
  Carveout(int multiprocessors, const std::function<void()>& prefer_cublaslt)
      : before_(at::globalContext()._SMCarveout_EXPERIMENTAL()) {
    without_warnings(prefer_cublaslt);
    if (!before_) set(multiprocessors);
  }
  Carveout& operator=(Carveout&&) = delete;
  ~Carveout() {
    if (!before_) set(std::nullopt);
  }

 private:
  /// PyTorch warns that the settings are experimental.
  struct Silence final : c10::WarningHandler {
    void process(const c10::Warning& /*warning*/) override {}
  };
  static void without_warnings(const std::function<void()>& change) {
    Silence silence;
    const c10::WarningUtils::WarningHandlerGuard guard(&silence);
    change();
  }
  static void set(std::optional<std::int32_t> multiprocessors) {
    without_warnings([&] { at::globalContext()._setSMCarveout_EXPERIMENTAL(multiprocessors); });
  }

  std::optional<std::int32_t> before_;
};

class PairTransport final : public Transport {
 public:
  explicit PairTransport(Communicators communicators) : to_(std::move(communicators)), starts_(to_.breaker) {
    if (to_.breaker) {
      intact_ = at::ones({1}, at::kDouble);
      if (!to_.device.is_cpu()) intact_ = intact_.pin_memory();
      aborts_.emplace(to_.breaker.get(), [this] { abort(); });
    }
    // Other numbers may select other kernels, with other bits.
    if (to_.device.is_cpu() || to_.sums_in_order || to_.message_blocks == 0) return;
    carveout_.emplace(to_.message_blocks, to_.prefer_cublaslt);
  }
  PairTransport& operator=(PairTransport&&) = delete;

  /// NCCL connects two members at their first transfer, which blocks both. Done in the middle of a program, two ranks
  /// could each wait for another one.
  ///
  /// Issues the first call of each kind on every group, in the order of make_communicators().
  void connect() {
    set_timeouts(to_.timeout);
    if (to_.everyone) connect_groups();
    if (to_.connected) to_.connected();
  }

  ~PairTransport() override {
    const bool has_failed = std::uncaught_exceptions() > exceptions_before_ || starts_.is_broken();
    if (has_failed && to_.breaker)
      abort();
    else if (to_.end)
      end(has_failed);
  }

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& /*tag*/) override {
    const int peer = static_cast<int>(to.value());
    const std::string operation = fmt::format("rank {}: send to rank {}", to_.rank, peer);
    return guarded(operation, [&] {
      std::vector<at::Tensor> tensors{without_stream_record(tensor)};
      auto work = starts_([&] { return pair(peer).out->send(tensors, member(peer), kTag); });
      return std::make_unique<PendingWorks>(operation, Works{std::move(work)}, at::Tensor(), std::move(tensor));
    });
  }

  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& /*tag*/) override {
    const int peer = static_cast<int>(from.value());
    const std::string operation = fmt::format("rank {}: receive from rank {}", to_.rank, peer);
    return guarded(operation, [&] {
      const at::Tensor tensor = at::empty(spec.sizes, at::TensorOptions(to_.device).dtype(spec.dtype));
      std::vector<at::Tensor> tensors{without_stream_record(tensor)};
      auto work = starts_([&] { return pair(peer).in->recv(tensors, member(peer), kTag); });
      return std::make_unique<PendingWorks>(operation, Works{std::move(work)}, tensor);
    });
  }

  std::unique_ptr<Pending> start_sum(ParameterGroupId id, GradientSum sum) override {
    const Group& group = group_of(id);
    if (!group) {
      if (sum.order != nullptr) sum.gradients.copy_(add_in_order(*sum.order, {std::move(sum.parts)}));
      return std::make_unique<Completed>(std::move(sum.gradients));
    }
    const std::string operation = fmt::format("rank {}: {} of stage {}", to_.rank, sum.name(), id.value());
    return guarded(operation, [&]() -> std::unique_ptr<Pending> {
      if (sum.order != nullptr)
        return starts_([&] { return std::make_unique<OrderedSum>(operation, starts_, group, sum); });
      if (!sum.scatters()) {
        std::vector<at::Tensor> tensors{sum.gradients};
        return std::make_unique<PendingWorks>(operation, Works{starts_([&] { return group->allreduce(tensors); })},
                                              sum.gradients);
      }
      if (are_equal(sum.gradients, sum.counts)) {
        at::Tensor own = own_part(sum.gradients, *group);
        return std::make_unique<PendingWorks>(
            operation, Works{starts_([&] { return group->_reduce_scatter_base(own, sum.gradients); })}, sum.gradients);
      }
      Works reductions = for_each_part(sum.gradients, sum.counts, [&](int owner, std::vector<at::Tensor>& part) {
        c10d::ReduceOptions options;
        options.rootRank = owner;
        return starts_([&] { return group->reduce(part, options); });
      });
      return std::make_unique<PendingWorks>(operation, std::move(reductions), sum.gradients);
    });
  }

  std::unique_ptr<Pending> start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    const Group& group = group_of(id);
    if (!group) return std::make_unique<Completed>(std::move(buffer));
    const std::string operation = fmt::format("rank {}: all-gather of stage {}", to_.rank, id.value());
    return guarded(operation, [&] {
      if (are_equal(buffer, counts)) {
        at::Tensor own = own_part(buffer, *group);
        return std::make_unique<PendingWorks>(
            operation, Works{starts_([&] { return group->_allgather_base(buffer, own); })}, buffer);
      }
      Works broadcasts = for_each_part(buffer, counts, [&](int owner, std::vector<at::Tensor>& part) {
        c10d::BroadcastOptions options;
        options.rootRank = owner;
        return starts_([&] { return group->broadcast(part, options); });
      });
      return std::make_unique<PendingWorks>(operation, std::move(broadcasts), buffer);
    });
  }

  void connect_sums(ParameterGroupId id, const at::Tensor& gradients,
                    const std::vector<std::int64_t>& counts) override {
    const Group& group = group_of(id);
    if (!group) return;
    if (!to_.sums_in_order) {
      start_sum(id, {.gradients = gradients, .counts = counts})->wait();
      return;
    }
    // Ordered sums exchange slices by transfers, which connect_group() connects. An all-reduce then gathers the slices.
    if (!counts.empty()) return;
    guarded(fmt::format("rank {}: all-reduce of stage {}", to_.rank, id.value()), [&] {
      const int members = group->getSize();
      const std::int64_t slice = (gradients.numel() + members - 1) / members;  // As in SliceExchange
      gather(starts_, *group, at::zeros({slice}, gradients.options()));
    });
  }

  /// c10d starts the clock of an operation when it is launched, up to a step before the device reaches it.
  void note_longest_step(std::chrono::milliseconds longest) override {
    // Timeouts only grow: a step that was long once may be so again.
    if (kStepsOfTimeout * longest > timeout_) set_timeouts(kStepsOfTimeout * longest);
  }

  /// c10d notices an error of NCCL on a thread of its own.
  void require_peers() override {
    guarded(fmt::format("rank {}", to_.rank), [this] { starts_.require_connections(); });
    for (const Group& group : all_groups(to_)) {
      const c10d::ErrorType error = group->getError();
      if (error == c10d::ErrorType::SUCCESS) continue;
      throw PeerLostError(fmt::format("rank {}: {} reports {}", to_.rank, group->getBackendName(),
                                      error == c10d::ErrorType::TIMEOUT ? "a timeout" : "that a connection failed"));
    }
  }

  void all_sum(std::span<double> values) override {
    if (!to_.everyone) return;
    const auto count = static_cast<std::int64_t>(values.size());
    std::ranges::copy(sum_to_host(at::from_blob(values.data(), {count}, at::kDouble).to(to_.device), {}),
                      values.begin());
  }

  std::vector<double> sum_to_host(const at::Tensor& values, const std::function<void()>& before_wait) override {
    if (!to_.everyone) return Transport::sum_to_host(values, before_wait);
    const std::string operation = fmt::format("rank {}: all-sum", to_.rank);
    const at::Tensor sums = guarded(operation, [&] {
      const at::Tensor sum = sum_over_everyone(values);
      return to_.breaker ? at::cat({sum, confirmations()}) : sum;
    });
    const StreamMark end(to_.device);
    if (before_wait) before_wait();
    poll_until([&] { return end.is_reached(); }, [this] { require_peers(); });
    std::vector<double> numbers = guarded(operation, [&] { return on_host(sums); });
    if (!to_.breaker) return numbers;
    guarded(operation, [this] { starts_.require_connections(); });
    for (int rank = 0; rank < to_.everyone->getSize(); ++rank)
      if (numbers[static_cast<std::size_t>(values.numel() + rank)] != confirmation_of(rank))
        throw PeerLostError(fmt::format("{}: rank {} has left the step", operation, rank));
    numbers.resize(static_cast<std::size_t>(values.numel()));
    return numbers;
  }

  void confirm() override {
    std::array<double, 1> nothing{};
    if (to_.breaker) all_sum(nothing);
  }

 private:
  static constexpr int kTag = 0;  // NCCL has no tags

  /// NCCL's own reduce-scatter and all-gather, both in place, need equal parts.
  static bool are_equal(const at::Tensor& buffer, const std::vector<std::int64_t>& counts) {
    return std::ranges::all_of(counts, [&](std::int64_t each) { return each * std::ssize(counts) == buffer.numel(); });
  }
  static at::Tensor own_part(const at::Tensor& buffer, const c10d::Backend& group) {
    return buffer.chunk(group.getSize())[static_cast<std::size_t>(group.getRank())];
  }
  /// For unequal parts, starts one operation per owner of elements: a reduction to each, or a broadcast from each.
  template <class Start>
  static Works for_each_part(const at::Tensor& buffer, const std::vector<std::int64_t>& counts, const Start& start) {
    Works works;
    std::int64_t offset = 0;
    for (std::size_t member = 0; member < counts.size(); offset += counts[member++]) {
      if (counts[member] == 0) continue;
      std::vector<at::Tensor> part{buffer.narrow(0, offset, counts[member])};
      works.push_back(start(static_cast<int>(member), part));
    }
    return works;
  }

  [[nodiscard]] const Communicators::Pair& pair(int peer) const {
    const auto found = to_.pairs.find(peer);
    if (found == to_.pairs.end()) throw TransportError("this pair has no communicator");
    return found->second;
  }
  [[nodiscard]] int member(int peer) const { return peer > to_.rank ? 1 : 0; }

  void end(bool has_failed) noexcept {
    try {
      to_.end(has_failed);
    } catch (const std::exception&) {
    }
  }

  /// Also called by the breaker's thread, and repeatedly.
  void abort() {
    // The exchange lets only the first of several calls abort.
    if (std::atomic_ref(*intact_.mutable_data_ptr<double>()).exchange(0) == 0) return;
    starts_.abort([this] { abort_together(all_groups(to_)); });
  }

  /// Returns [rank]: confirmation_of(rank), or 0 if the rank's groups were aborted before its device got here. The
  /// device reads `intact_` only then, and abort() sets it to 0 before any result can be wrong.
  [[nodiscard]] at::Tensor confirmations() {
    ++confirmed_sums_;
    const at::Tensor own = intact_.to(to_.device, /*non_blocking=*/true).mul(confirmation_of(to_.rank));
    return at::cat(gather(starts_, *to_.everyone, own));
  }
  /// Differs by sum and rank: aborted groups may deliver data of earlier sums or other ranks.
  [[nodiscard]] double confirmation_of(int rank) const {
    constexpr double kUnusual = 0x1.23p50;  // Not a loss, norm or count
    return kUnusual + static_cast<double>(confirmed_sums_ * to_.everyone->getSize() + rank);
  }

  void set_timeouts(std::chrono::milliseconds timeout) {
    timeout_ = timeout;
    for (const Group& group : all_groups(to_)) group->setTimeout(timeout);
  }

  void connect_groups() const {
    guarded(fmt::format("rank {}: connecting with its peers", to_.rank), [&] {
      static_cast<void>(sum_over_everyone(nothing(at::kDouble)));
      advance();
      for (const Group& group : to_.process_groups) connect_group(group);
      for (const auto& [peer, pair] : to_.pairs) connect_pair(peer, pair);
      static_cast<void>(on_host(sum_over_everyone(nothing(at::kDouble))));  // waits for all ranks and devices
    });
  }

  void advance() const {
    if (to_.on_group_connected) to_.on_group_connected();
  }
  [[nodiscard]] at::Tensor nothing(at::ScalarType type, std::int64_t elements = 1) const {
    return at::zeros({elements}, at::TensorOptions(to_.device).dtype(type));
  }
  /// An ordered sum also uses an all-to-all, whose transfers connect members pair by pair.
  void connect_group(const Group& group) const {
    if (!group) return;
    std::vector<at::Tensor> sum{nothing(at::kFloat)};
    starts_([&] { return group->allreduce(sum); })->wait();
    advance();
    if (!to_.sums_in_order) return;
    at::Tensor outgoing = nothing(at::kFloat, group->getSize());
    at::Tensor arrived = nothing(at::kFloat, group->getSize());
    std::vector<std::int64_t> sent(static_cast<std::size_t>(group->getSize()), 1);
    std::vector<std::int64_t> received = sent;
    starts_([&] { return group->alltoall_base(arrived, outgoing, received, sent); })->wait();
  }
  void connect_pair(int peer, const Communicators::Pair& pair) const {
    std::vector<at::Tensor> element{nothing(at::kFloat)};
    const auto send = [&] { starts_([&] { return pair.out->send(element, member(peer), kTag); })->wait(); };
    const auto receive = [&] { starts_([&] { return pair.in->recv(element, member(peer), kTag); })->wait(); };
    // The lower rank sends first and the higher one receives first, so both ends connect the same communicator.
    const bool is_lower = to_.rank < peer;
    is_lower ? send() : receive();
    advance();
    is_lower ? receive() : send();
    advance();
  }

  [[nodiscard]] const Group& group_of(ParameterGroupId id) const {
    static_cast<void>(index_in_group(to_.groups, id, RankId(to_.rank)));
    return to_.process_groups[id.index()];
  }
  /// Gathers all values and adds them in ascending order of ranks, so that the bits do not depend on NCCL's algorithm.
  [[nodiscard]] at::Tensor sum_over_everyone(const at::Tensor& values) const {
    const std::vector<at::Tensor> all = gather(starts_, *to_.everyone, values);
    at::Tensor sum = all.front();
    for (std::size_t rank = 1; rank < all.size(); ++rank) sum.add_(all[rank]);
    return sum;
  }

  static std::vector<double> on_host(const at::Tensor& values) {
    const at::Tensor own = values.cpu();
    return {own.const_data_ptr<double>(), own.const_data_ptr<double>() + own.numel()};
  }

  Communicators to_;
  mutable Starter starts_;
  std::optional<Carveout> carveout_;
  at::Tensor intact_;                // with a breaker: 1, or 0 once groups are aborted; pinned
  std::int64_t confirmed_sums_ = 0;  // number of sums with confirmations so far
  std::chrono::milliseconds timeout_{0};
  int exceptions_before_ = std::uncaught_exceptions();
  std::optional<ConnectionBreaker::AbortScope> aborts_;  // last member: it uses the others
};

}  // namespace

std::unique_ptr<Transport> make_pair_transport(Communicators communicators) {
  auto transport = std::make_unique<PairTransport>(std::move(communicators));
  transport->connect();
  return transport;
}

}  // namespace chimera
