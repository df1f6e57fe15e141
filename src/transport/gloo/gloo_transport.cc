#include "transport/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <cstdlib>
#include <exception>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "transport/gloo/collectives.h"
#include "transport/gloo/connections.h"
#include "transport/gloo/group.h"
#include "transport/gloo/shared_sum.h"
#include "transport/groups.h"
#include "transport/ordered_sum.h"
#include "transport/slice_exchange.h"

namespace chimera {
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
  std::unique_ptr<Pending> start_sum(ParameterGroupId id, GradientSum sum) override;
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
  const Operation operation{.kind = OperationKind::Send, .other = peer};
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
  const Operation operation{.kind = OperationKind::Receive, .other = peer};
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

// A sum in an order of its own runs in shared memory only if all members are on one host.
std::unique_ptr<Pending> GlooTransport::start_sum(ParameterGroupId id, GradientSum sum) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));
  const GlooGroup& group = connections_.group(id);
  const SumGroups& shared = connections_.sum_groups(id);
  const bool in_memory = shared.host && (sum.order == nullptr || !shared.counterparts);
  const at::Tensor gradients = sum.gradients;
  const Operation operation{.kind = sum.scatters() ? OperationKind::ReduceScatter : OperationKind::AllReduce,
                            .other = id.value()};
  return guarded(
      [&] { return to_text(rank_, operation); },
      [&]() -> std::unique_ptr<Pending> {
        if (!group) {
          if (sum.order != nullptr) gradients.copy_(add_in_order(*sum.order, {std::move(sum.parts)}));
          return std::make_unique<Completed>(gradients);
        }
        if (in_memory) {
          return std::make_unique<CollectivePending<SharedSum>>(*this, operation, gradients, shared, sum_memory_,
                                                                std::move(sum), timeout_);
        }
        if (sum.order == nullptr && !sum.scatters()) {
          c10d::AllreduceOptions options;
          options.timeout = timeout_;
          std::vector<at::Tensor> tensors{gradients};
          return std::make_unique<GlooPending>(*this, operation, group->allreduce(tensors, options), gradients);
        }
        const SumOrder by_member = one_part_each(group->getSize());
        if (sum.order == nullptr) {
          sum.order = &by_member;  // the exchange copies it
          sum.parts = {gradients};
        }
        return std::make_unique<CollectivePending<GlooOrderedSum>>(*this, operation, gradients, group, sum, timeout_);
      });
}

std::unique_ptr<Pending> GlooTransport::start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                                         const std::vector<std::int64_t>& counts) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));
  const GlooGroup& group = connections_.group(id);
  if (!group) return std::make_unique<Completed>(std::move(buffer));
  const Operation operation{.kind = OperationKind::AllGather, .other = id.value()};
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
