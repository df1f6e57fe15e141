#include "transport/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <concepts>
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

/// A transfer or collective, for errors.
struct Operation {
  const char* name;    ///< "send to rank"
  std::int64_t other;  ///< Rank, or stage of collectives
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(const GlooOptions& options)
      : options_(options), sum_memory_(std::make_shared<SumMemory>(options.breaker)), connections_(options) {
    leave_header_room();
    keep_no_flight_record();
    try {
      const auto joining = [&] {
        return fmt::format("rank {}: joining {} ranks{}", rank(), options.world_size,
                           joining_limit(options.start_up_timeout));
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
  template <std::invocable Describe, class Action>
  std::invoke_result_t<Action> guarded(Describe&& describe, Action&& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      failed_ = true;
      const ConnectionBreaker* breaker = options_.breaker.get();
      if (breaker != nullptr && breaker->broken()) throw PeerLostError(describe() + ": connections were broken");
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
      rethrow_gloo(describe(), error);
    }
  }
  template <class Action>
  std::invoke_result_t<Action> guarded(const Operation& operation, Action&& action) {
    return guarded([&] { return to_text(operation); }, std::forward<Action>(action));
  }
  [[nodiscard]] std::string to_text(const Operation& operation) const {
    return fmt::format("rank {}: {} {}", rank(), operation.name, operation.other);
  }
  [[nodiscard]] int rank() const { return options_.rank; }
  [[nodiscard]] const GlooOptions& options() const { return options_; }

 private:
  void end_after_failure() noexcept {
    if (!options_.breaker) return connections_.abandon();
    sum_memory_->close();
    connections_.close();
  }
  /// Returns null if this rank is the only member.
  [[nodiscard]] const GlooGroup& group(ParameterGroupId id) const {
    static_cast<void>(place_in_group(options_.groups, id, RankId(rank())));
    return connections_.group(id);
  }

  GlooOptions options_;
  int exceptions_before_ = std::uncaught_exceptions();
  bool failed_ = false;
  std::shared_ptr<SumMemory> sum_memory_;
  GlooConnections connections_;
};

/// c10d works that belong to one operation. A collective is an all-reduce of c10d's, which completes on a thread of the
/// group; sends and receives complete only in wait().
class GlooPending final : public Pending {
 public:
  GlooPending(GlooTransport& transport, Operation operation, Works works, at::Tensor result, bool is_collective = false)
      : transport_(transport),
        operation_(operation),
        works_(std::move(works)),
        result_(std::move(result)),
        is_collective_(is_collective) {}

  at::Tensor wait() override {
    const auto wait = is_collective_ ? wait_for_collective : wait_for;
    const GlooOptions& options = transport_.options();
    transport_.guarded(operation_, [&] {
      for (const auto& work : works_) wait(*work, options.timeout, options.breaker.get());
    });
    return result_;
  }

  void call_when_done(std::function<void()> done) override {
    if (!is_collective_) return;
    works_.front()->getFuture()->addCallback([done = std::move(done)](c10::ivalue::Future& future) {
      if (!future.hasError()) done();
    });
  }

 private:
  GlooTransport& transport_;
  Operation operation_;
  Works works_;  // keep the tensors alive
  at::Tensor result_;
  bool is_collective_;
};

class GlooReceive final : public Pending {
 public:
  GlooReceive(GlooTransport& transport, Operation operation, c10::intrusive_ptr<c10d::Work> work, at::Tensor buffer,
              TensorSpec spec, const MessageTag& tag)
      : transport_(transport),
        from_(operation.other),
        arrival_(transport, operation, {std::move(work)}, std::move(buffer)),
        spec_(std::move(spec)),
        tag_(tag) {}

  at::Tensor wait() override {
    const at::Tensor buffer = arrival_.wait();
    const RankId self(transport_.rank());
    return transport_.guarded([] { return std::string(); },
                              [&] { return open_message(buffer, spec_, tag_, from_, self); });
  }

 private:
  GlooTransport& transport_;
  RankId from_;
  GlooPending arrival_;
  TensorSpec spec_;
  MessageTag tag_;
};

/// A SharedSum or GlooOrderedSum. Their errors do not name the operation.
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
    transport_.guarded(operation_, [&] {
      try {
        collective_.wait();
      } catch (const PeerLostError& error) {
        throw PeerLostError(transport_.to_text(operation_) + ": " + error.what());
      } catch (const Error& error) {
        throw TransportError(transport_.to_text(operation_) + ": " + error.what());
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
  const Operation operation{.name = "send to rank", .other = peer};
  return guarded(operation, [&] {
    std::vector<at::Tensor> tensors{make_message(tensor, tag)};
    auto work = connections_.channel(rank(), peer).send(tensors, place_in_pair(peer, rank()), kMessageTag);
    return std::make_unique<GlooPending>(*this, operation, Works{std::move(work)}, at::Tensor());
  });
}

std::unique_ptr<Pending> GlooTransport::post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) {
  const int peer = static_cast<int>(from.value());
  const Operation operation{.name = "receive from rank", .other = peer};
  return guarded(operation, [&] {
    std::vector<at::Tensor> tensors{message_buffer(spec)};
    auto work = connections_.channel(peer, rank()).recv(tensors, place_in_pair(peer, rank()), kMessageTag);
    return std::make_unique<GlooReceive>(*this, operation, std::move(work), std::move(tensors.front()), spec, tag);
  });
}

// A sum in an order of its own runs in shared memory only if all members are on one host.
std::unique_ptr<Pending> GlooTransport::start_sum(ParameterGroupId id, GradientSum sum) {
  const GlooGroup& members = group(id);
  const SumGroups& shared = connections_.sum_groups(id);
  const at::Tensor gradients = sum.gradients;
  const Operation operation{.name = sum.scatters() ? "reduce-scatter of stage" : "all-reduce of stage",
                            .other = id.value()};
  return guarded(operation, [&]() -> std::unique_ptr<Pending> {
    if (!members) {
      if (sum.order != nullptr) gradients.copy_(add_in_order(*sum.order, {std::move(sum.parts)}));
      return std::make_unique<Completed>(gradients);
    }
    if (shared.host && (sum.order == nullptr || !shared.counterparts)) {
      return std::make_unique<CollectivePending<SharedSum>>(*this, operation, gradients, shared, sum_memory_,
                                                            std::move(sum), options_.timeout);
    }
    if (sum.order == nullptr && !sum.scatters()) {
      c10d::AllreduceOptions options;
      options.timeout = options_.timeout;
      std::vector<at::Tensor> tensors{gradients};
      return std::make_unique<GlooPending>(*this, operation, Works{members->allreduce(tensors, options)}, gradients,
                                           /*is_collective=*/true);
    }
    const SumOrder by_member = one_part_each(members->getSize());
    if (sum.order == nullptr) {
      sum.order = &by_member;  // the exchange copies it
      sum.parts = {gradients};
    }
    return std::make_unique<CollectivePending<GlooOrderedSum>>(*this, operation, gradients, members, sum,
                                                               options_.timeout);
  });
}

std::unique_ptr<Pending> GlooTransport::start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                                         const std::vector<std::int64_t>& counts) {
  const GlooGroup& members = group(id);
  if (!members) return std::make_unique<Completed>(std::move(buffer));
  const Operation operation{.name = "all-gather of stage", .other = id.value()};
  return guarded(operation, [&] {
    return std::make_unique<GlooPending>(*this, operation, start_gloo_all_gather(members, buffer, counts), buffer);
  });
}

void GlooTransport::all_sum(std::span<double> values) {
  if (options_.world_size == 1) return;
  guarded([&] { return fmt::format("rank {}: all-sum", rank()); },
          [&] { connections_.tree().sum(values, options_.timeout); });
}

}  // namespace

std::unique_ptr<Transport> connect_gloo(const GlooOptions& options) { return std::make_unique<GlooTransport>(options); }

}  // namespace chimera
