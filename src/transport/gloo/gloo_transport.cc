#include "transport/gloo/gloo_transport.h"

#include <fmt/format.h>
#include <cstdlib>
#include <exception>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "transport/gloo/collectives.h"
#include "transport/gloo/group.h"
#include "transport/gloo/op_sum.h"
#include "transport/gloo/shared_sum.h"
#include "transport/groups.h"
#include "transport/ordered_sum.h"
#include "transport/slice_exchange.h"

// Every call goes through GlooRank::guarded(), which translates exceptions and remembers that one occurred, because the
// destructor may only wait for other ranks if nothing has failed. The classes below it are the Pending objects:
// GlooPending for works of c10d, GlooReceive for messages, and CollectivePending for the sums of this folder.
// GlooTransport::start_sum() chooses between them, as the table in the header says.

namespace chimera {
namespace {

constexpr int kMessageTag = 0;  // a channel carries only messages

/// Disables c10d's flight recorder by default: concurrent writers crashed it (LibTorch 2.11).
void keep_no_flight_record() {
  static const bool once = (::setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0), true);
  static_cast<void>(once);
}

/// What the operations of a rank share: its options, and the translation of Gloo's errors.
class GlooRank {
 public:
  explicit GlooRank(const GlooOptions& options) : options_(options) {}

  [[nodiscard]] int rank() const { return options_.rank; }
  [[nodiscard]] const GlooOptions& options() const { return options_; }
  /// Returns whether an operation has failed.
  [[nodiscard]] bool has_failed() const { return has_failed_; }

  /// Runs `action`; rethrows Gloo's errors as TransportError with the operation.
  template <class Action>
  std::invoke_result_t<Action> guarded(const std::string& operation, Action&& action) {
    try {
      return action();
    } catch (const std::exception& error) {
      has_failed_ = true;
      const ConnectionBreaker* breaker = options_.breaker.get();
      // Whatever has failed, the broken connections are the cause.
      if (breaker != nullptr && breaker->is_broken()) throw PeerLostError(operation + ": connections were broken");
      if (dynamic_cast<const Error*>(&error) != nullptr) throw;
      rethrow_gloo(operation, error);
    }
  }
  /// Returns an operation for errors, such as "rank 1: send to rank 0". `other` is a rank, or the stage of a
  /// collective.
  [[nodiscard]] std::string operation(const char* name, std::int64_t other) const {
    return fmt::format("rank {}: {} {}", rank(), name, other);
  }

 private:
  GlooOptions options_;
  bool has_failed_ = false;
};

/// c10d works that belong to one operation. A collective is an all-reduce of c10d's, which completes on a thread of the
/// group; sends and receives complete only in wait().
class GlooPending final : public Pending {
 public:
  GlooPending(GlooRank& self, std::string operation, Works works, at::Tensor result, bool is_collective = false)
      : self_(self),
        operation_(std::move(operation)),
        works_(std::move(works)),
        result_(std::move(result)),
        is_collective_(is_collective) {}

  at::Tensor wait() override {
    const auto wait = is_collective_ ? wait_for_collective : wait_for;
    const GlooOptions& options = self_.options();
    self_.guarded(operation_, [&] {
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
  GlooRank& self_;
  std::string operation_;
  Works works_;  // keep the tensors alive
  at::Tensor result_;
  bool is_collective_;
};

class GlooReceive final : public Pending {
 public:
  GlooReceive(GlooRank& self, RankId from, GlooPending arrival, TensorSpec spec, const MessageTag& tag)
      : self_(self), from_(from), arrival_(std::move(arrival)), spec_(std::move(spec)), tag_(tag) {}

  at::Tensor wait() override {
    const at::Tensor buffer = arrival_.wait();
    const RankId to(self_.rank());
    return self_.guarded("", [&] { return open_message(buffer, spec_, tag_, from_, to, &sent_); });
  }
  [[nodiscard]] double sent() const override { return sent_; }

 private:
  GlooRank& self_;
  RankId from_;
  GlooPending arrival_;
  TensorSpec spec_;
  MessageTag tag_;
  double sent_ = 0;
};

/// A SharedSum or GlooOrderedSum. Their errors do not name the operation.
template <class Collective>
class CollectivePending final : public Pending {
 public:
  template <class... Arguments>
  CollectivePending(GlooRank& self, std::string operation, at::Tensor buffer, Arguments&&... arguments)
      : self_(self),
        operation_(std::move(operation)),
        buffer_(std::move(buffer)),
        collective_(std::forward<Arguments>(arguments)...) {}

  at::Tensor wait() override {
    self_.guarded(operation_, [&] {
      try {
        collective_.wait();
      } catch (const PeerLostError& error) {
        throw PeerLostError(operation_ + ": " + error.what());
      } catch (const Error& error) {
        throw TransportError(operation_ + ": " + error.what());
      }
    });
    return buffer_;
  }
  void call_when_done(std::function<void()> done) override {
    if constexpr (requires { collective_.call_when_done(done); }) collective_.call_when_done(std::move(done));
  }

 private:
  GlooRank& self_;
  std::string operation_;
  at::Tensor buffer_;
  Collective collective_;
};

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(const GlooOptions& options)
      : self_(options), sum_memory_(std::make_shared<SumMemory>(options.breaker)), connections_(options) {
    leave_header_room();
    keep_no_flight_record();
    try {
      self_.guarded(fmt::format("rank {}: joining {} ranks", options.rank, options.world_size),
                    [&] { connections_.join(); });
    } catch (...) {
      // No destructor runs if the constructor throws.
      end_after_failure();
      throw;
    }
  }

  /// Destroying a group breaks its connections. Ranks that still use them would take that for a failure, so all leave
  /// together, unless one has failed.
  ~GlooTransport() override {
    const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
    if (self_.has_failed() || unwinding || !connections_.leave_together()) end_after_failure();
  }

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override {
    const int peer = static_cast<int>(to.value());
    const std::string operation = self_.operation("send to rank", peer);
    return self_.guarded(operation, [&] {
      std::vector<at::Tensor> tensors{make_message(tensor, tag)};
      auto work =
          connections_.channel(self_.rank(), peer).send(tensors, index_in_pair(peer, self_.rank()), kMessageTag);
      return std::make_unique<GlooPending>(self_, operation, Works{std::move(work)}, at::Tensor());
    });
  }

  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override {
    const int peer = static_cast<int>(from.value());
    const std::string operation = self_.operation("receive from rank", peer);
    return self_.guarded(operation, [&] {
      std::vector<at::Tensor> tensors{message_buffer(spec)};
      auto work =
          connections_.channel(peer, self_.rank()).recv(tensors, index_in_pair(peer, self_.rank()), kMessageTag);
      GlooPending arrival(self_, operation, {std::move(work)}, std::move(tensors.front()));
      return std::make_unique<GlooReceive>(self_, from, std::move(arrival), spec, tag);
    });
  }

  // A sum in an order of its own runs in shared memory only if all members are on one host.
  std::unique_ptr<Pending> start_sum(ParameterGroupId id, GradientSum sum) override {
    const GlooGroup& members = group(id);
    const SumGroups& shared = connections_.sum_groups(id);
    const at::Tensor gradients = sum.gradients;
    const std::string operation =
        self_.operation(sum.scatters() ? "reduce-scatter of stage" : "all-reduce of stage", id.value());
    return self_.guarded(operation, [&]() -> std::unique_ptr<Pending> {
      if (!members) {
        if (sum.order != nullptr) gradients.copy_(add_in_order(*sum.order, {std::move(sum.parts)}));
        return std::make_unique<Completed>(gradients);
      }
      if (shared.host && (sum.order == nullptr || !shared.counterparts)) {
        return std::make_unique<CollectivePending<SharedSum>>(self_, operation, gradients, shared, sum_memory_,
                                                              std::move(sum), self_.options().timeout);
      }
      if (sum.order == nullptr && !sum.scatters()) {
        const auto options = with_timeout<c10d::AllreduceOptions>(self_.options().timeout);
        std::vector<at::Tensor> tensors{gradients};
        return std::make_unique<GlooPending>(self_, operation, Works{members->allreduce(tensors, options)}, gradients,
                                             /*is_collective=*/true);
      }
      // Gloo cannot reduce-scatter unequal parts. The exchange can, but needs an order: one part of each member.
      const SumOrder by_member = one_part_each(members->getSize());
      if (sum.order == nullptr) {
        sum.order = &by_member;  // the exchange copies it
        sum.parts = {gradients};
      }
      return std::make_unique<CollectivePending<GlooOrderedSum>>(self_, operation, gradients, members, sum,
                                                                 self_.options().timeout);
    });
  }

  void sum_in_op(ParameterGroupId id, at::Tensor values) override {
    OpSum* const sum = op_sum(id);
    if (sum == nullptr) return Transport::sum_in_op(id, std::move(values));
    self_.guarded(self_.operation("sum in an op, group", id.value()),
                  [&] { sum->add(values, self_.options().timeout); });
  }

  std::vector<at::Tensor> exchange_in_op(ParameterGroupId id, const at::Tensor& values) override {
    OpSum* const sum = op_sum(id);
    if (sum == nullptr) return {};
    return self_.guarded(self_.operation("sum in an op, group", id.value()),
                         [&] { return sum->exchange(values, self_.options().timeout); });
  }

  std::unique_ptr<Pending> start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override {
    const GlooGroup& members = group(id);
    if (!members) return std::make_unique<Completed>(std::move(buffer));
    const std::string operation = self_.operation("all-gather of stage", id.value());
    return self_.guarded(operation, [&] {
      return std::make_unique<GlooPending>(self_, operation, start_gloo_all_gather(members, buffer, counts), buffer);
    });
  }

  void all_sum(std::span<double> values) override {
    if (self_.options().world_size == 1) return;
    self_.guarded(fmt::format("rank {}: all-sum", self_.rank()),
                  [&] { connections_.tree().sum(values, self_.options().timeout); });
  }

 private:
  void end_after_failure() noexcept {
    op_sums_.clear();  // peers that wait notice at once
    if (!self_.options().breaker) return connections_.abandon();
    sum_memory_->close();
    connections_.close();
  }
  /// Returns null unless all members are on this host.
  [[nodiscard]] OpSum* op_sum(ParameterGroupId id) {
    const GlooGroup& members = group(id);
    const SumGroups& shared = connections_.sum_groups(id);
    if (!members || !shared.host || shared.counterparts) return nullptr;
    auto& sum = op_sums_[id];
    if (!sum) sum = std::make_unique<OpSum>(members, self_.options().breaker);
    return sum.get();
  }
  /// Returns null if this rank is the only member.
  [[nodiscard]] const GlooGroup& group(ParameterGroupId id) const {
    static_cast<void>(index_in_group(self_.options().groups, id, RankId(self_.rank())));
    return connections_.group(id);
  }

  GlooRank self_;
  int exceptions_before_ = std::uncaught_exceptions();
  std::shared_ptr<SumMemory> sum_memory_;
  GlooConnections connections_;
  std::map<ParameterGroupId, std::unique_ptr<OpSum>> op_sums_;
};

}  // namespace

std::unique_ptr<Transport> connect_gloo(const GlooOptions& options) { return std::make_unique<GlooTransport>(options); }

}  // namespace chimera
