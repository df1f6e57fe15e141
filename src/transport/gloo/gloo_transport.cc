#include "transport/gloo/gloo_transport.h"

#include <ATen/Functions.h>
#include <ATen/core/grad_mode.h>
#include <c10/util/ParallelGuard.h>
#include <fmt/format.h>
#include <cstdlib>
#include <exception>
#include <future>
#include <string_view>
#include <system_error>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "transport/completed.h"
#include "transport/gloo/connections.h"
#include "transport/gloo/group.h"
#include "transport/gloo/shared_sum.h"
#include "transport/groups.h"
#include "transport/ordered_sum.h"
#include "transport/slice_exchange.h"

namespace chimera {
namespace {

constexpr std::string_view kConnectFailed = "Gloo connectFullMesh failed with ";

/// Returns the first line of `text` without a source location: "[/path/pair.cc:81] Connection closed".
std::string reason(std::string text) {
  if (text.find("Connect timeout") != std::string::npos) {
    return "no connection in time; check that the hosts reach each other (firewall, --interface)";
  }
  text = text.substr(0, text.find('\n'));
  if (text.starts_with(kConnectFailed)) text.erase(0, kConnectFailed.size());
  const auto end_of_place = text.find("] ");
  if (text.starts_with('[') && end_of_place != std::string::npos) text.erase(0, end_of_place + 2);
  return text;
}

}  // namespace

std::string to_text(int rank, const Operation& operation) {
  switch (operation.kind) {
    case OperationKind::Send: return fmt::format("rank {}: send to rank {}", rank, operation.other);
    case OperationKind::Receive: return fmt::format("rank {}: receive from rank {}", rank, operation.other);
    case OperationKind::AllReduce: return fmt::format("rank {}: all-reduce of stage {}", rank, operation.other);
    case OperationKind::ReduceScatter: return fmt::format("rank {}: reduce-scatter of stage {}", rank, operation.other);
    case OperationKind::AllGather: return fmt::format("rank {}: all-gather of stage {}", rank, operation.other);
  }
  return {};
}

void rethrow_gloo(const std::string& operation, const std::exception& error) {
  const auto* system = dynamic_cast<const std::system_error*>(&error);
  if (system != nullptr && system->code() == std::errc::resource_unavailable_try_again) {
    throw TransportError(operation +
                         ": the system has no more threads; raise the limit of processes (ulimit -u, or the "
                         "container's pids.max)");
  }
  const auto* c10_error = dynamic_cast<const c10::Error*>(&error);
  const std::string text = c10_error != nullptr ? c10_error->what_without_backtrace() : error.what();
  const bool by_gloo = dynamic_cast<const gloo::IoException*>(&error) != nullptr || text.starts_with(kConnectFailed);
  const bool ran_out = text.find("Timed out") != std::string::npos || text.find("timeout") != std::string::npos;
  const std::string message = fmt::format("{}: {}", operation, reason(text));
  if (by_gloo && !ran_out) throw PeerLostError(message);
  throw TransportError(message);
}

namespace {

using Works = std::vector<c10::intrusive_ptr<c10d::Work>>;

constexpr int kGatherTag = 0;
constexpr int kSumTag = 1;

void receive(const GlooGroup& group, at::Tensor part, std::int64_t member, int tag, Works& works) {
  std::vector<at::Tensor> tensors{std::move(part)};
  works.push_back(group->recv(tensors, static_cast<int>(member), tag));
}

void send_to_others(const GlooGroup& group, const at::Tensor& part, int tag, Works& works) {
  for (int member = 0; member < group->getSize(); ++member) {
    if (member == group->getRank()) continue;
    std::vector<at::Tensor> tensors{part};
    works.push_back(group->send(tensors, member, tag));
  }
}

/// Posts receives for the other members' parts of `buffer`; returns this member's part.
at::Tensor receive_from_others(const GlooGroup& group, const at::Tensor& buffer,
                               const std::vector<std::int64_t>& counts, int tag, Works& works) {
  at::Tensor own;
  std::int64_t offset = 0;
  for (int member = 0; member < group->getSize(); ++member) {
    const std::int64_t count = counts[static_cast<std::size_t>(member)];
    const at::Tensor part = buffer.narrow(0, offset, count);
    offset += count;
    if (member == group->getRank()) {
      own = part;
    } else if (count > 0) {
      receive(group, part, member, tag, works);
    }
  }
  return own;
}

}  // namespace

GlooAllGather::GlooAllGather(const GlooGroup& group, const at::Tensor& buffer, const std::vector<std::int64_t>& counts,
                             std::chrono::milliseconds timeout)
    : timeout_(timeout) {
  const at::Tensor own = receive_from_others(group, buffer, counts, kGatherTag, works_);
  if (own.numel() > 0) send_to_others(group, own, kGatherTag, works_);
}

void GlooAllGather::wait() {
  for (const auto& work : works_) wait_for(*work, timeout_);
}

struct GlooOrderedSum::State {
  State(GlooGroup members, const at::Tensor& gradients, const std::vector<at::Tensor>& parts, const SumOrder& order,
        std::chrono::milliseconds patience, std::vector<std::int64_t> counts)
      : group(std::move(members)),
        scatters(!counts.empty()),
        exchange(*group, gradients, parts, order, patience, std::move(counts)),
        timeout(patience) {}

  GlooGroup group;
  bool scatters;  // each member keeps its slice
  SliceExchange exchange;
  at::Tensor own;
  Works receives;
  Works sends;
  std::promise<void> added;  // slice added and sends started, or the error
  std::chrono::milliseconds timeout;

  void add_and_send() {
    const c10::ParallelGuard one_thread(true);
    const at::NoGradGuard no_grad;
    if (own.numel() == 0) return;
    own.copy_(exchange.add());
    if (!scatters) send_to_others(group, own, kSumTag, sends);
  }
};

GlooOrderedSum::GlooOrderedSum(const GlooGroup& group, const at::Tensor& gradients,
                               const std::vector<at::Tensor>& parts, const SumOrder& order,
                               std::chrono::milliseconds timeout, std::vector<std::int64_t> counts)
    : state_(std::make_shared<State>(group, gradients, parts, order, timeout, std::move(counts))) {
  State& state = *state_;
  state.own = state.scatters ? state.exchange.own_slice(gradients)
                             : receive_from_others(group, gradients, state.exchange.counts(), kSumTag, state.receives);
  state.exchange.work().getFuture()->addCallback([shared = state_](c10::ivalue::Future& exchange) {
    try {
      if (exchange.hasError()) std::rethrow_exception(exchange.exception_ptr());
      shared->add_and_send();
      shared->added.set_value();
    } catch (...) {
      shared->added.set_exception(std::current_exception());
    }
  });
}

void GlooOrderedSum::wait() {
  State& state = *state_;
  wait_for(state.exchange.work(), state.timeout);
  state.added.get_future().get();
  for (const auto& work : state.receives) wait_for(*work, state.timeout);
  for (const auto& work : state.sends) wait_for(*work, state.timeout);
}

namespace {

constexpr int kMessageTag = 0;  // a channel carries only messages

/// Disables c10d's flight recorder by default: concurrent writers crashed it (LibTorch 2.11).
void keep_no_flight_record() {
  static const bool once = (::setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0), true);
  static_cast<void>(once);
}

/// Returns an empty text for a day or more.
std::string joining_limit(std::chrono::milliseconds timeout) {
  return timeout < std::chrono::hours(24) ? fmt::format(", up to {} ms a step", timeout.count()) : "";
}

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(const GlooOptions& options)
      : rank_(options.rank),
        world_size_(options.world_size),
        timeout_(options.timeout),
        groups_(options.groups),
        breaker_(options.breaker),
        sum_memory_(std::make_shared<SumMemory>(options.breaker)),
        connections_(options) {
    leave_header_room();
    keep_no_flight_record();
    try {
      const auto joining = [&] {
        return fmt::format("rank {}: joining {} ranks{}", rank_, world_size_, joining_limit(options.start_up_timeout));
      };
      guarded(joining, [&] { connections_.join(); });
    } catch (...) {
      end_after_failure();
      throw;
    }
  }

  ~GlooTransport() override {
    const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
    if (failed_ || unwinding || !connections_.leave_together()) end_after_failure();
  }

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override;
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override;
  std::unique_ptr<Pending> start_all_reduce(ParameterGroupId id, at::Tensor gradients) override;
  std::unique_ptr<Pending> start_ordered_all_reduce(ParameterGroupId id, at::Tensor gradients,
                                                    std::vector<at::Tensor> parts, const SumOrder& order) override;
  std::unique_ptr<Pending> start_reduce_scatter(ParameterGroupId id, at::Tensor gradients,
                                                std::vector<at::Tensor> parts, const SumOrder* order,
                                                const std::vector<std::int64_t>& counts) override;
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override;
  void all_sum(std::span<double> values) override;

  /// Runs `action`; rethrows Gloo's errors as TransportError with the operation.
  template <class Describe, class Action>
  std::invoke_result_t<Action> guarded(Describe&& describe, Action&& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      failed_ = true;
      if (breaker_ && breaker_->broken()) throw PeerLostError(std::string(describe()) + ": connections were broken");
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
      rethrow_gloo(describe(), error);
    }
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }
  [[nodiscard]] ConnectionBreaker* breaker() const { return breaker_.get(); }

 private:
  void end_after_failure() noexcept {
    if (!breaker_) return connections_.abandon();
    sum_memory_->close();
    connections_.close();
  }
  std::unique_ptr<Pending> start_shared_sum(ParameterGroupId id, at::Tensor gradients,
                                            const std::vector<at::Tensor>& parts, const SumOrder* order,
                                            const std::vector<std::int64_t>& counts = {});

  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  RankGroups groups_;
  int exceptions_before_ = std::uncaught_exceptions();
  bool failed_ = false;
  std::shared_ptr<ConnectionBreaker> breaker_;
  std::shared_ptr<SumMemory> sum_memory_;
  GlooConnections connections_;
};

class GlooPending final : public Pending {
 public:
  GlooPending(GlooTransport& transport, Operation operation, c10::intrusive_ptr<c10d::Work> work, at::Tensor result)
      : transport_(transport), operation_(operation), work_(std::move(work)), result_(std::move(result)) {}

  at::Tensor wait() override {
    const auto describe = [&] { return to_text(transport_.rank(), operation_); };
    const auto wait = operation_.kind == OperationKind::AllReduce ? wait_for_collective : wait_for;
    transport_.guarded(describe, [&] { wait(*work_, transport_.timeout(), transport_.breaker()); });
    return result_;
  }

  /// c10d completes collectives on its own thread, but sends and receives only in wait().
  void call_when_done(std::function<void()> done) override {
    if (operation_.kind != OperationKind::AllReduce) return;
    work_->getFuture()->addCallback([done = std::move(done)](c10::ivalue::Future& future) {
      if (!future.hasError()) done();
    });
  }

 private:
  GlooTransport& transport_;
  Operation operation_;
  c10::intrusive_ptr<c10d::Work> work_;  // keeps the tensor alive
  at::Tensor result_;
};

class GlooReceive final : public Pending {
 public:
  GlooReceive(GlooTransport& transport, Operation operation, c10::intrusive_ptr<c10d::Work> work, at::Tensor buffer,
              TensorSpec spec, const MessageTag& tag)
      : transport_(transport),
        from_(operation.other),
        arrival_(transport, operation, std::move(work), std::move(buffer)),
        spec_(std::move(spec)),
        tag_(tag) {}

  at::Tensor wait() override {
    const at::Tensor buffer = arrival_.wait();
    const RankId self(transport_.rank());
    return transport_.guarded([] { return ""; }, [&] { return open_message(buffer, spec_, tag_, from_, self); });
  }

 private:
  GlooTransport& transport_;
  RankId from_;
  GlooPending arrival_;
  TensorSpec spec_;
  MessageTag tag_;
};

template <class Collective>
class CollectivePending final : public Pending {
 public:
  template <class... Arguments>
  CollectivePending(GlooTransport& transport, Operation operation, at::Tensor buffer, Arguments&&... arguments)
      : transport_(transport),
        operation_(operation),
        buffer_(std::move(buffer)),
        collective_(std::forward<Arguments>(arguments)...) {}

  at::Tensor wait() override {
    const auto describe = [&] { return to_text(transport_.rank(), operation_); };
    transport_.guarded(describe, [&] {
      try {
        collective_.wait();
      } catch (const PeerLostError& error) {
        throw PeerLostError(describe() + ": " + error.what());
      } catch (const Error& error) {
        throw TransportError(describe() + ": " + error.what());
      }
    });
    return buffer_;
  }
  void call_when_done(std::function<void()> done) override {
    if constexpr (requires { collective_.call_when_done(done); }) collective_.call_when_done(std::move(done));
  }

 private:
  GlooTransport& transport_;
  Operation operation_;
  at::Tensor buffer_;
  Collective collective_;
};

std::unique_ptr<Pending> GlooTransport::start_send(RankId to, at::Tensor tensor, const MessageTag& tag) {
  const int peer = static_cast<int>(to.value());
  const Operation operation{OperationKind::Send, peer};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   std::vector<at::Tensor> tensors{make_message(tensor, tag)};
                   auto work = connections_.channels()
                                   .between(rank_, peer)
                                   ->send(tensors, MessageChannels::place(peer, rank_), kMessageTag);
                   return std::make_unique<GlooPending>(*this, operation, std::move(work), at::Tensor());
                 });
}

std::unique_ptr<Pending> GlooTransport::post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) {
  const int peer = static_cast<int>(from.value());
  const Operation operation{OperationKind::Receive, peer};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   std::vector<at::Tensor> tensors{message_buffer(spec)};
                   auto work = connections_.channels()
                                   .between(peer, rank_)
                                   ->recv(tensors, MessageChannels::place(peer, rank_), kMessageTag);
                   return std::make_unique<GlooReceive>(*this, operation, std::move(work), std::move(tensors.front()),
                                                        spec, tag);
                 });
}

std::unique_ptr<Pending> GlooTransport::start_all_reduce(ParameterGroupId id, at::Tensor gradients) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));
  const GlooGroup& group = connections_.group(id);
  if (!group) return std::make_unique<Completed>(std::move(gradients));
  if (connections_.sum_groups(id).host) return start_shared_sum(id, std::move(gradients), {}, nullptr);
  const Operation operation{OperationKind::AllReduce, id.value()};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   c10d::AllreduceOptions sum;
                   sum.timeout = timeout_;
                   std::vector<at::Tensor> tensors{gradients};
                   return std::make_unique<GlooPending>(*this, operation, group->allreduce(tensors, sum),
                                                        std::move(gradients));
                 });
}

std::unique_ptr<Pending> GlooTransport::start_ordered_all_reduce(ParameterGroupId id, at::Tensor gradients,
                                                                 std::vector<at::Tensor> parts, const SumOrder& order) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));
  const GlooGroup& group = connections_.group(id);
  const bool on_one_host = connections_.sum_groups(id).host && !connections_.sum_groups(id).counterparts;
  if (group && on_one_host) return start_shared_sum(id, std::move(gradients), parts, &order);
  const Operation operation{OperationKind::AllReduce, id.value()};
  return guarded([&] { return to_text(rank_, operation); },
                 [&]() -> std::unique_ptr<Pending> {
                   if (group) {
                     return std::make_unique<CollectivePending<GlooOrderedSum>>(*this, operation, gradients, group,
                                                                                gradients, parts, order, timeout_);
                   }
                   gradients.copy_(add_in_order(order, {std::move(parts)}));
                   return std::make_unique<Completed>(std::move(gradients));
                 });
}

std::unique_ptr<Pending> GlooTransport::start_shared_sum(ParameterGroupId id, at::Tensor gradients,
                                                         const std::vector<at::Tensor>& parts, const SumOrder* order,
                                                         const std::vector<std::int64_t>& counts) {
  const Operation operation{counts.empty() ? OperationKind::AllReduce : OperationKind::ReduceScatter, id.value()};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   return std::make_unique<CollectivePending<SharedSum>>(*this, operation, gradients,
                                                                         connections_.sum_groups(id), sum_memory_,
                                                                         gradients, parts, order, timeout_, counts);
                 });
}

std::unique_ptr<Pending> GlooTransport::start_reduce_scatter(ParameterGroupId id, at::Tensor gradients,
                                                             std::vector<at::Tensor> parts, const SumOrder* order,
                                                             const std::vector<std::int64_t>& counts) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));
  const GlooGroup& group = connections_.group(id);
  if (!group) return Transport::start_reduce_scatter(id, std::move(gradients), std::move(parts), order, counts);
  const SumGroups& shared = connections_.sum_groups(id);
  if (shared.host && (order == nullptr || !shared.counterparts)) {
    return start_shared_sum(id, std::move(gradients), parts, order, counts);
  }
  const Operation operation{OperationKind::ReduceScatter, id.value()};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   if (order == nullptr) parts = {gradients};
                   return std::make_unique<CollectivePending<GlooOrderedSum>>(
                       *this, operation, gradients, group, gradients, parts,
                       order == nullptr ? one_part_each(group->getSize()) : *order, timeout_, counts);
                 });
}

std::unique_ptr<Pending> GlooTransport::start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                                         const std::vector<std::int64_t>& counts) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));
  const GlooGroup& group = connections_.group(id);
  if (!group) return std::make_unique<Completed>(std::move(buffer));
  const Operation operation{OperationKind::AllGather, id.value()};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   return std::make_unique<CollectivePending<GlooAllGather>>(*this, operation, buffer, group, buffer,
                                                                             counts, timeout_);
                 });
}

void GlooTransport::all_sum(std::span<double> values) {
  if (world_size_ == 1) return;
  guarded([&] { return fmt::format("rank {}: all-sum", rank_); }, [&] { connections_.tree().sum(values, timeout_); });
}

}  // namespace

std::unique_ptr<Transport> connect_gloo(const GlooOptions& options) { return std::make_unique<GlooTransport>(options); }

}  // namespace chimera
