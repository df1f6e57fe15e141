#include "transport/gloo/gloo_transport.h"

#include <ATen/Functions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <random>
#include <torch/csrc/distributed/c10d/FileStore.hpp>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/error.h"
#include "core/fault_point.h"
#include "transport/completed.h"
#include "transport/gloo/collectives.h"
#include "transport/gloo/device.h"
#include "transport/gloo/errors.h"
#include "transport/gloo/one_way_groups.h"
#include "transport/gloo/shared_sum.h"
#include "transport/gloo/store_file.h"
#include "transport/groups.h"
#include "transport/ordered_sum.h"

namespace chimera {
namespace {

using c10d::ProcessGroupGloo;

constexpr auto kLeaveTimeout = std::chrono::seconds(3);

/// c10d's flight recorder keeps the last operations of all groups of a process in one list. Threads that add to it at
/// once have crashed there (LibTorch 2.11), and nothing here reads it. An environment that sets its size has its way.
void keep_no_flight_record() {
  static const bool once = (::setenv("TORCH_FR_BUFFER_SIZE", "0", /*replace=*/0), true);
  static_cast<void>(once);
}

class GlooTransport final : public Transport {
 public:
  explicit GlooTransport(const GlooOptions& options)
      : rank_(options.rank),
        world_size_(options.world_size),
        timeout_(options.timeout),
        groups_(options.groups),
        file_(options.store_path) {
    leave_header_room();
    keep_no_flight_record();
    process_groups_.resize(groups_.size());
    shares_.resize(groups_.size());
    try {
      const auto joining = [&] {
        return fmt::format("rank {}: joining {} ranks, up to {} ms a step", rank_, world_size_,
                           options.start_up_timeout.count());
      };
      guarded(joining, [&] { connect(options); });
    } catch (...) {
      abandon();
      throw;
    }
  }

  ~GlooTransport() override {
    const bool unwinding = std::uncaught_exceptions() > exceptions_before_;
    if (failed_ || unwinding || !leave_together()) abandon();
  }

  std::unique_ptr<Pending> start_send(RankId to, at::Tensor tensor, const MessageTag& tag) override;
  std::unique_ptr<Pending> post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) override;
  std::unique_ptr<Pending> start_all_reduce(ParameterGroupId id, at::Tensor gradients) override;
  std::unique_ptr<Pending> start_ordered_all_reduce(ParameterGroupId id, at::Tensor gradients,
                                                    std::vector<at::Tensor> parts, const SumOrder& order) override;
  std::unique_ptr<Pending> start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                            const std::vector<std::int64_t>& counts) override;
  void all_sum(std::span<double> values) override;

  /// Runs `action`; what Gloo throws becomes a TransportError that says what was going on, and ends the transport.
  template <class Describe, class Action>
  std::invoke_result_t<Action> guarded(Describe&& describe, Action&& action) {
    try {
      return action();
    } catch (const Error&) {
      failed_ = true;
      throw;
    } catch (const std::exception& error) {
      failed_ = true;
      rethrow_gloo(describe(), error);
    }
  }
  [[nodiscard]] int rank() const { return rank_; }
  [[nodiscard]] std::chrono::milliseconds timeout() const { return timeout_; }

 private:
  void connect(const GlooOptions& options);
  void compare(const Fingerprint& own);
  std::vector<at::Tensor> gather_from_all(std::vector<at::Tensor>& mine);
  void find_shared_memory();
  /// Of a group that this rank is a member of, with others.
  std::unique_ptr<Pending> start_shared_sum(ParameterGroupId id, at::Tensor gradients,
                                            const std::vector<at::Tensor>& parts, const SumOrder* order);
  bool leave_together() noexcept;
  void abandon() noexcept;
  /// The tag by which Gloo tells channels apart.
  [[nodiscard]] int channel(int from, int to) const { return from * world_size_ + to; }

  int rank_;
  int world_size_;
  std::chrono::milliseconds timeout_;
  RankGroups groups_;
  int exceptions_before_ = std::uncaught_exceptions();
  bool failed_ = false;
  StoreFile file_;  // closed after the store that reads it
  c10::intrusive_ptr<c10d::FileStore> store_;
  OneWayGroups messages_;  // and all_sum's
  GlooGroup everyone_;
  std::vector<GlooGroup> process_groups_;  // by parameter group; none where this rank is no member, or the only one
  std::vector<bool> shares_;               // likewise: whether all members can map each other's memory
  std::shared_ptr<SumMemory> sum_memory_ = std::make_shared<SumMemory>();
};

class GlooPending final : public Pending {
 public:
  GlooPending(GlooTransport& transport, Operation operation, c10::intrusive_ptr<c10d::Work> work, at::Tensor result)
      : transport_(transport), operation_(operation), work_(std::move(work)), result_(std::move(result)) {}

  at::Tensor wait() override {
    const auto describe = [&] { return to_text(transport_.rank(), operation_); };
    transport_.guarded(describe, [&] {
      if (!work_->wait(transport_.timeout())) throw TransportError(describe() + ": aborted");
    });
    return result_;
  }

  /// c10d completes a collective on a thread of its own, but a send or receive in wait() alone.
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
    transport_.guarded([] { return ""; }, [&] { check_message(buffer, tag_, from_, self); });
    return tensor_of(buffer, spec_);
  }

 private:
  GlooTransport& transport_;
  RankId from_;
  GlooPending arrival_;
  TensorSpec spec_;
  MessageTag tag_;
};

/// One of gloo_collectives.h under way.
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

// All ranks create their groups in the same order, as each creation waits for the other members.
void GlooTransport::connect(const GlooOptions& options) {
  fault_point("rendezvous");
  if (world_size_ > 1) {
    store_ = c10::make_intrusive<c10d::FileStore>(file_.path(), /*numWorkers=*/-1);
    store_->setTimeout(options.start_up_timeout);
    const auto device = create_device(options.loopback);
    const auto create = [&](const std::string& name, int rank, std::size_t size) {
      auto group_options = ProcessGroupGloo::Options::create(options.start_up_timeout);
      group_options->devices.push_back(device);  // one for all groups: one thread for all sockets
      group_options->threads = 1;
      return c10::make_intrusive<ProcessGroupGloo>(c10::make_intrusive<c10d::PrefixStore>(name, store_), rank,
                                                   static_cast<int>(size), group_options);
    };
    everyone_ = create("everyone", rank_, static_cast<std::size_t>(world_size_));
    if (!options.fingerprint.empty()) compare(options.fingerprint);
    messages_.up = create("messages up", rank_, static_cast<std::size_t>(world_size_));
    messages_.down = create("messages down", rank_, static_cast<std::size_t>(world_size_));
    for (std::size_t g = 0; g < groups_.size(); ++g) {
      const auto& group = groups_[g];
      const auto place = std::find(group.begin(), group.end(), RankId(rank_));
      if (place == group.end() || group.size() == 1) continue;
      process_groups_[g] = create(fmt::format("group{}", g), static_cast<int>(place - group.begin()), group.size());
    }
    if (options.share_memory) find_shared_memory();
    c10d::BarrierOptions barrier;  // a rank that is ready and gone must not be missed by one still connecting
    barrier.timeout = options.start_up_timeout;
    everyone_->barrier(barrier)->wait();
  }
  fault_point("connected");
}

void GlooTransport::compare(const Fingerprint& own) {
  FingerprintWords words = to_words(own);
  const auto size = static_cast<std::int64_t>(words.size());
  std::vector<at::Tensor> mine{at::from_blob(words.data(), {size}, at::kLong)};
  std::vector<FingerprintWords> of_ranks;
  for (const at::Tensor& other : gather_from_all(mine)) {
    of_ranks.emplace_back(other.data_ptr<std::int64_t>(), other.data_ptr<std::int64_t>() + size);
  }
  require_equal(own, of_ranks, rank_);
}

// Each rank says where its memory is to be found, tries that of all others, and says whose it can map.
void GlooTransport::find_shared_memory() {
  const SharedMemory memory(sizeof(std::int64_t));
  const SharedAddress own = memory.address();
  std::random_device random;
  const auto mark = static_cast<std::int64_t>((std::uint64_t{random()} << 32U) | random());
  std::memcpy(memory.data(), &mark, sizeof mark);
  std::vector<at::Tensor> mine{at::tensor({own.process, own.descriptor, own.file, mark}, at::kLong)};
  std::vector<MarkedMemory> memories;
  for (const at::Tensor& words : gather_from_all(mine)) {
    const auto* word = words.const_data_ptr<std::int64_t>();
    memories.push_back({{word[0], word[1], word[2]}, word[3]});
  }
  const std::vector<bool> found = mappable(memories);
  mine = {at::empty({world_size_}, at::kLong)};
  std::copy(found.begin(), found.end(), mine.front().data_ptr<std::int64_t>());
  const std::vector<at::Tensor> all = gather_from_all(mine);  // [rank][other]
  const auto maps = [&](RankId rank, RankId other) {
    return all[rank.index()].const_data_ptr<std::int64_t>()[other.index()] != 0;
  };
  for (std::size_t g = 0; g < groups_.size(); ++g) {
    const auto& group = groups_[g];
    shares_[g] = std::ranges::all_of(group, [&](RankId rank) {
      return std::ranges::all_of(group, [&](RankId other) { return maps(rank, other); });
    });
  }
}

/// What every rank gives, [rank]; all of one size and type.
std::vector<at::Tensor> GlooTransport::gather_from_all(std::vector<at::Tensor>& mine) {
  std::vector<std::vector<at::Tensor>> all(1);
  for (int rank = 0; rank < world_size_; ++rank) all.front().push_back(at::empty_like(mine.front()));
  c10d::AllgatherOptions gather;
  gather.timeout = timeout_;
  everyone_->allgather(all, mine, gather)->wait();
  return std::move(all.front());
}

bool GlooTransport::leave_together() noexcept {
  if (world_size_ == 1) return true;
  try {
    c10d::BarrierOptions barrier;
    barrier.timeout = kLeaveTimeout;
    everyone_->barrier(barrier)->wait();
    return true;
  } catch (const std::exception&) {
    return false;  // this rank is done all the same; who failed says so itself
  }
}

void GlooTransport::abandon() noexcept {
  messages_.release();
  everyone_.release();
  for (GlooGroup& group : process_groups_) group.release();
  store_.release();
  file_.abandon();
}

std::unique_ptr<Pending> GlooTransport::start_send(RankId to, at::Tensor tensor, const MessageTag& tag) {
  const int peer = static_cast<int>(to.value());
  const Operation operation{OperationKind::Send, peer};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   std::vector<at::Tensor> tensors{make_message(tensor, tag)};
                   auto work = messages_.between(rank_, peer)->send(tensors, peer, channel(rank_, peer));
                   return std::make_unique<GlooPending>(*this, operation, std::move(work), at::Tensor());
                 });
}

std::unique_ptr<Pending> GlooTransport::post_receive(RankId from, const TensorSpec& spec, const MessageTag& tag) {
  const int peer = static_cast<int>(from.value());
  const Operation operation{OperationKind::Receive, peer};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   std::vector<at::Tensor> tensors{message_buffer(spec)};
                   auto work = messages_.between(peer, rank_)->recv(tensors, peer, channel(peer, rank_));
                   return std::make_unique<GlooReceive>(*this, operation, std::move(work), std::move(tensors.front()),
                                                        spec, tag);
                 });
}

std::unique_ptr<Pending> GlooTransport::start_all_reduce(ParameterGroupId id, at::Tensor gradients) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));  // throws unless a member
  const GlooGroup& group = process_groups_[id.index()];
  if (!group) return std::make_unique<Completed>(std::move(gradients));
  if (shares_[id.index()]) return start_shared_sum(id, std::move(gradients), {}, nullptr);
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
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));  // throws unless a member
  const GlooGroup& group = process_groups_[id.index()];
  if (group && shares_[id.index()]) return start_shared_sum(id, std::move(gradients), parts, &order);
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
                                                         const std::vector<at::Tensor>& parts, const SumOrder* order) {
  const Operation operation{OperationKind::AllReduce, id.value()};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   return std::make_unique<CollectivePending<SharedSum>>(*this, operation, gradients,
                                                                         process_groups_[id.index()], sum_memory_,
                                                                         gradients, parts, order, timeout_);
                 });
}

std::unique_ptr<Pending> GlooTransport::start_all_gather(ParameterGroupId id, at::Tensor buffer,
                                                         const std::vector<std::int64_t>& counts) {
  static_cast<void>(place_in_group(groups_, id, RankId(rank_)));  // throws unless a member
  const GlooGroup& group = process_groups_[id.index()];
  if (!group) return std::make_unique<Completed>(std::move(buffer));
  const Operation operation{OperationKind::AllGather, id.value()};
  return guarded([&] { return to_text(rank_, operation); },
                 [&] {
                   return std::make_unique<CollectivePending<GlooAllGather>>(*this, operation, buffer, group, buffer,
                                                                             counts, timeout_);
                 });
}

// Gathers and adds here: few values, and their order of summing is then that of the workers.
void GlooTransport::all_sum(std::span<double> values) {
  if (world_size_ == 1) return;
  guarded([&] { return fmt::format("rank {}: all-sum", rank_); },
          [&] { sum_over_ranks(messages_, values, /*tag=*/world_size_ * world_size_, timeout_); });
}

}  // namespace

std::unique_ptr<Transport> connect_gloo(const GlooOptions& options) { return std::make_unique<GlooTransport>(options); }

}  // namespace chimera
