// libchimera_cuda.so over the fake device (support/fake_device.h): beside a copy of the program it makes `--device
// cuda` work without a GPU, for threads, and for processes with CHIMERA_SHARE_GPU=1. benchmarks/gpu/measure.py
// --rehearse runs its list on it.

#include <ATen/ATen.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>

#include "core/error.h"
#include "support/fake_accelerator.h"
#include "support/fake_device.h"
#include "transport/gloo/gloo_transport.h"
#include "transport/gloo/rendezvous_store.h"
#include "transport/groups.h"
#include "transport/pairs/communicators.h"

namespace chimera::testing {
namespace {

constexpr ParameterGroupId kMembers{0};

/// The fake device's tensors lie in the CPU's memory.
at::Tensor on_cpu(const at::Tensor& tensor) {
  return at::for_blob(tensor.data_ptr(), tensor.sizes())
      .deleter([tensor](void* /*data*/) {})
      .options(tensor.options().device(at::kCPU))
      .make_tensor();
}

/// An abort that waits can await.
class Abort {
 public:
  void begin() {
    const std::lock_guard lock(mutex_);
    has_begun_ = true;
    news_.notify_all();
  }
  void await() {
    std::unique_lock lock(mutex_);
    news_.wait(lock, [this] { return has_begun_; });
  }
  [[nodiscard]] bool has_begun() {
    const std::lock_guard lock(mutex_);
    return has_begun_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable news_;
  bool has_begun_ = false;
};

/// Like NCCL's, its wait never fails: if a peer is lost, it lasts until the abort, and the data are wrong then.
class FakeWork final : public c10d::Work {
 public:
  FakeWork(std::shared_ptr<Abort> abort, std::function<void()> finish, std::vector<at::Tensor> results)
      : abort_(std::move(abort)), finish_(std::move(finish)), results_(std::move(results)) {}
  bool wait(std::chrono::milliseconds /*timeout*/) override {
    const at::NoGradGuard no_graph;
    try {
      finish_();
    } catch (const Error&) {
      abort_->await();
      for (const at::Tensor& result : results_) result.fill_(0.5);
    }
    return true;
  }

 private:
  std::shared_ptr<Abort> abort_;
  std::function<void()> finish_;
  std::vector<at::Tensor> results_;  // on the CPU
};

/// A communicator over Gloo.
class FakeCommunicator final : public c10d::Backend {
 public:
  using Works = c10::intrusive_ptr<c10d::Work>;

  FakeCommunicator(const NcclOptions& options, const NewCommunicator& wanted,
                   std::shared_ptr<gloo::transport::Device> device, std::shared_ptr<ConnectionBreaker> breaker)
      : Backend(wanted.member, wanted.size), breaker_(std::move(breaker)) {
    std::vector<RankId> members;
    for (int member = 0; member < wanted.size; ++member) members.emplace_back(member);
    RendezvousPoint rendezvous = options.rendezvous;
    rendezvous.attempt += wanted.name + "/";
    rendezvous.listens = false;  // The server of connect_fakes() has all keys
    transport_ = connect_gloo({.rank = wanted.member,
                               .world_size = wanted.size,
                               .rendezvous = std::move(rendezvous),
                               .start_up_timeout = options.start_up_timeout,
                               .groups = {members},
                               .share_memory = false,
                               .breaker = breaker_,
                               .device = std::move(device)});
  }

  void abort() override {
    abort_->begin();
    breaker_->break_all();
  }
  /// Waits for the other members.
  void shutdown() override { transport_.reset(); }
  void setTimeout(std::chrono::milliseconds /*timeout*/) override {}
  [[nodiscard]] const std::string getBackendName() const override { return "fake"; }  // NOLINT: as in c10d

  Works send(std::vector<at::Tensor>& tensors, int to, int /*tag*/) override {
    return start([&] { return transport_->start_send(RankId(to), on_cpu(tensors.front()), {}); }, {});
  }
  Works recv(std::vector<at::Tensor>& tensors, int from, int /*tag*/) override {
    const at::Tensor result = on_cpu(tensors.front());
    const TensorSpec spec{result.sizes().vec(), result.scalar_type()};
    return start([&] { return transport_->post_receive(RankId(from), spec, {}); }, {result});
  }
  Works allreduce(std::vector<at::Tensor>& tensors, const c10d::AllreduceOptions& /*options*/) override {
    const at::Tensor sum = on_cpu(tensors.front()).view(-1);
    return start([&] { return transport_->start_all_reduce(kMembers, sum); }, {sum});
  }
  Works allgather(std::vector<std::vector<at::Tensor>>& all, std::vector<at::Tensor>& mine,
                  const c10d::AllgatherOptions& /*options*/) override {
    const at::Tensor own = on_cpu(mine.front()).view(-1);
    const at::Tensor buffer = own.repeat(getSize());
    std::vector<at::Tensor> results;
    for (const at::Tensor& result : all.front()) results.push_back(on_cpu(result).view(-1));
    return start([&] { return transport_->start_all_gather(kMembers, buffer, counts(own.numel())); }, results,
                 [=](const at::Tensor& gathered) {
                   for (std::size_t m = 0; m < results.size(); ++m) results[m].copy_(gathered.chunk(results.size())[m]);
                 });
  }
  Works broadcast(std::vector<at::Tensor>& tensors, const c10d::BroadcastOptions& options) override {
    const at::Tensor values = on_cpu(tensors.front()).view(-1);
    std::vector<std::int64_t> from_root = counts(0);
    from_root[static_cast<std::size_t>(options.rootRank)] = values.numel();
    return later([=, this] { transport_->start_all_gather(kMembers, values, from_root)->wait(); }, {values});
  }
  Works reduce(std::vector<at::Tensor>& tensors, const c10d::ReduceOptions& options) override {
    const at::Tensor values = on_cpu(tensors.front()).view(-1);
    const bool is_root = options.rootRank == getRank();
    return later(
        [=, this] {
          const at::Tensor sum = transport_->start_all_reduce(kMembers, values.clone())->wait();
          is_root ? values.copy_(sum) : values.fill_(0.5);
        },
        {values});
  }
  Works _allgather_base(at::Tensor& all, at::Tensor& mine, const c10d::AllgatherOptions& /*options*/) override {
    const at::Tensor buffer = on_cpu(all).view(-1);
    return start([&] { return transport_->start_all_gather(kMembers, buffer, counts(mine.numel())); }, {buffer});
  }
  Works _reduce_scatter_base(at::Tensor& mine, at::Tensor& all, const c10d::ReduceScatterOptions& /*o*/) override {
    const at::Tensor values = on_cpu(all).view(-1);
    const at::Tensor own = on_cpu(mine).view(-1);
    return later(
        [=, this] {
          own.copy_(transport_->start_all_reduce(kMembers, values.clone())->wait().chunk(getSize())[at(getRank())]);
        },
        {own});
  }
  Works alltoall_base(at::Tensor& arrived, at::Tensor& outgoing, std::vector<std::int64_t>& received,
                      std::vector<std::int64_t>& sent, const c10d::AllToAllOptions& /*options*/) override {
    const std::vector<at::Tensor> out = on_cpu(outgoing).view(-1).split_with_sizes(sent);
    const std::vector<at::Tensor> in = on_cpu(arrived).view(-1).split_with_sizes(received);
    return later(
        [=, this] {
          std::vector<std::unique_ptr<Pending>> sends;
          for (int to = 0; to < getSize(); ++to) {
            if (to != getRank()) sends.push_back(transport_->start_send(RankId(to), out[at(to)], {}));
          }
          for (int from = 0; from < getSize(); ++from) {
            const TensorSpec spec{in[at(from)].sizes().vec(), in[at(from)].scalar_type()};
            in[at(from)].copy_(from == getRank() ? out[at(from)]
                                                 : transport_->post_receive(RankId(from), spec, {})->wait());
          }
          for (const auto& each : sends) each->wait();
        },
        in);
  }

 private:
  static std::size_t at(int member) { return static_cast<std::size_t>(member); }
  [[nodiscard]] std::vector<std::int64_t> counts(std::int64_t each) const {
    return std::vector<std::int64_t>(at(getSize()), each);
  }
  void require_whole() const {
    if (abort_->has_begun()) throw c10::DistBackendError({}, "the communicator is aborted");
  }
  /// Runs `finish` in the wait: several such operations may be in flight.
  [[nodiscard]] Works later(std::function<void()> finish, std::vector<at::Tensor> results) const {
    require_whole();
    return c10::make_intrusive<FakeWork>(abort_, std::move(finish), std::move(results));
  }
  template <class Start>
  [[nodiscard]] Works start(const Start& begin, std::vector<at::Tensor> results,
                            std::function<void(const at::Tensor&)> deliver = {}) const {
    std::shared_ptr<Pending> pending;
    try {
      pending = begin();
    } catch (const Error&) {  // Nobody notices before the wait
    }
    if (!deliver && results.size() == 1)
      deliver = [result = results.front()](const at::Tensor& got) { result.copy_(got); };
    return later(
        [pending, deliver] {
          if (!pending) throw TransportError("a peer is lost");
          const at::Tensor got = pending->wait();
          if (deliver) deliver(got);
        },
        std::move(results));
  }

  std::shared_ptr<ConnectionBreaker> breaker_;
  std::shared_ptr<Abort> abort_ = std::make_shared<Abort>();
  std::unique_ptr<Transport> transport_;
};

std::unique_ptr<Transport> connect_fakes(const NcclOptions& options) {
  const auto store = std::make_shared<RendezvousStore>(options.rendezvous, options.start_up_timeout, options.breaker);
  store->await_all(options.rank, options.world_size);
  const auto device = gloo_device(store->own_address());
  const auto breaker = std::make_shared<ConnectionBreaker>();  // The rank's thread waits for one group at a time
  std::optional<ConnectionBreaker::AbortScope> connecting(std::in_place, options.breaker.get(),
                                                          [breaker] { breaker->break_all(); });
  Communicators to = make_communicators(options, {}, [&](const NewCommunicator& wanted) {
    return c10::make_intrusive<FakeCommunicator>(options, wanted, device, breaker);
  });
  connecting.reset();
  to.keep = store;
  to.device = at::Device(kFakeDevice, 0);
  to.message_blocks = 0;  // cuBLAS is not there
  to.end = [groups = all_groups(to)](bool has_failed) {
    if (has_failed) return abort_together(groups);
    for (const auto& group : groups) group->shutdown();
  };
  return make_pair_transport(std::move(to));
}

const Accelerator& fake_gpu() {
  static FakeAccelerator gpu;
  static const bool is_ready = [] {
    FakeDevice::install();
    gpu.device_type = kFakeDevice;
    gpu.devices = 1;
    gpu.records = [](const auto& work, const DeviceGraph* /*shared*/, const auto& generators) {
      return FakeDevice::get().record(work, generators);
    };
    gpu.connects = connect_fakes;
    return true;
  }();
  static_cast<void>(is_ready);
  return gpu;
}

}  // namespace
}  // namespace chimera::testing

extern "C" __attribute__((visibility("default"))) const chimera::Accelerator* chimera_accelerator_14() {
  return &chimera::testing::fake_gpu();
}
