// Accelerator over libtorch_cuda and c10d's NCCL backend. Built as libchimera_cuda.so, which is loaded only for
// --device cuda.
#define USE_DISTRIBUTED
#define USE_C10D_NCCL

#include "transport/accelerator.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Type.h>
#include <cuda.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <torch/csrc/profiler/stubs/base.h>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <vector>

#include "core/error.h"
#include "transport/gloo/rendezvous_store.h"
#include "transport/pairs/communicators.h"

namespace chimera {
namespace {

/// Makes the process groups of c10d for NCCL, and keeps them together with the store that they read.
class Groups {
 public:
  using Group = c10::intrusive_ptr<c10d::ProcessGroupNCCL>;

  explicit Groups(const NcclOptions& options)
      : rendezvous_(std::make_shared<RendezvousStore>(options.rendezvous, options.start_up_timeout, options.breaker)),
        device_(at::kCUDA, static_cast<c10::DeviceIndex>(options.gpu)),
        timeout_(options.timeout) {}

  [[nodiscard]] RendezvousStore& rendezvous() const { return *rendezvous_; }
  [[nodiscard]] at::Device device() const { return device_; }

  Group make(const NewCommunicator& wanted) {
    // Otherwise a send waits until the matrix products in front of it have started all of their blocks.
    auto options = c10d::ProcessGroupNCCL::Options::create(/*is_high_priority_stream=*/true);
    options->group_name = wanted.name;
    options->timeout = timeout_;
    options->config.maxCTAs = wanted.blocks;
    auto store = c10::make_intrusive<c10d::PrefixStore>(wanted.name, rendezvous_->store());
    made_.push_back(
        c10::make_intrusive<c10d::ProcessGroupNCCL>(std::move(store), wanted.member, wanted.size, std::move(options)));
    // By default NCCL would connect at the first operation, in the middle of a step.
    made_.back()->eagerConnectSingleDevice(device_);
    return made_.back();
  }

  void abort() { abort_together({made_.begin(), made_.end()}); }

  void shut_down() {
    for (const Group& group : made_) group->shutdown();
  }

 private:
  std::shared_ptr<RendezvousStore> rendezvous_;
  at::Device device_;
  std::chrono::milliseconds timeout_;
  std::vector<Group> made_;
};

/// Meets the other ranks, compares settings, and connects all communicators. Aborts them if one cannot be connected, so
/// that the ranks that wait for it fail, too.
Communicators join(const NcclOptions& options, const GpuTraits& gpu) {
  const auto groups = std::make_shared<Groups>(options);
  // Fingerprints are compared before any communicator exists, because ranks with other settings create others, and
  // would hang.
  groups->rendezvous().await_all(options.rank, options.world_size);
  c10d::Store& store = *groups->rendezvous().store();
  compare_ranks(store,
                {.rank = options.rank, .fingerprint = options.fingerprint, .gpu = ranks_share_gpus() ? "" : gpu.uuid},
                options.world_size);
  // The limits below must be equal on all ranks, so they follow from the smallest GPU.
  const BlockLimits limits =
      block_limits(options, minimum_over_ranks(store, options.rank, gpu.multiprocessors, options.world_size));
  try {
    Communicators to =
        make_communicators(options, limits, [&](const NewCommunicator& wanted) { return groups->make(wanted); });
    to.device = groups->device();
    to.keep = groups;  // Process groups read the store
    to.connected = [groups] { groups->rendezvous().stop_accepting(); };
    to.end = [groups](bool has_failed) { has_failed ? groups->abort() : groups->shut_down(); };
    return to;
  } catch (...) {
    groups->abort();
    throw;
  }
}

/// Returns a function of the driver, which this library does not link.
/// `since` is the CUDA version that introduced the function: 12030 is 12.3. Older drivers give null.
template <typename Function>
Function* driver_function(const char* name, unsigned int since) {
  void* found = nullptr;
  C10_CUDA_CHECK(cudaGetDriverEntryPointByVersion(name, &found, since, cudaEnableDefault, nullptr));
  return reinterpret_cast<Function*>(found);
}

/// The runtime names only kernels that it launched itself; cuBLAS and cuDNN use the driver.
std::string kernel_name(cudaGraphNode_t node) {
  static const auto parameters_of =
      driver_function<CUresult(CUgraphNode, CUDA_KERNEL_NODE_PARAMS*)>("cuGraphKernelNodeGetParams", 12000);
  static const auto function_name = driver_function<CUresult(const char**, CUfunction)>("cuFuncGetName", 12030);
  static const auto kernel_name = driver_function<CUresult(const char**, CUkernel)>("cuKernelGetName", 12030);
  CUDA_KERNEL_NODE_PARAMS parameters{};
  if (parameters_of == nullptr || parameters_of(node, &parameters) != CUDA_SUCCESS) return "kernel";
  const char* name = nullptr;
  const bool is_known = parameters.func != nullptr
                            ? function_name != nullptr && function_name(&name, parameters.func) == CUDA_SUCCESS
                            : kernel_name != nullptr && kernel_name(&name, parameters.kern) == CUDA_SUCCESS;
  return is_known ? c10::demangle(name) : "kernel";
}

class CudaGraph final : public DeviceGraph {
 public:
  /// Thread-local, because other threads use calls that a capture forbids: the loader pins memory, c10d queries events.
  CudaGraph(const std::function<void()>& work, const CudaGraph* shared, const std::vector<at::Generator>& generators) {
    for (const at::Generator& generator : generators) graph_.register_generator_state(generator);
    const at::cuda::MempoolId_t pool = shared == nullptr ? at::cuda::MempoolId_t{0, 0} : shared->pool_;
    graph_.capture_begin(pool, cudaStreamCaptureModeThreadLocal);
    try {
      work();
    } catch (...) {
      end_quietly();
      throw;
    }
    graph_.capture_end();
    pool_ = graph_.pool();
    kernels_ = kernels_of(graph_.raw_cuda_graph());
    graph_.instantiate();
  }
  void repeat() override { graph_.replay(); }
  [[nodiscard]] std::vector<std::string> kernels() const override { return kernels_; }

 private:
  /// Leaves out nodes that only order others.
  static std::vector<std::string> kernels_of(cudaGraph_t graph) {
    // The first call returns only the number of nodes.
    std::size_t count = 0;
    C10_CUDA_CHECK(cudaGraphGetNodes(graph, nullptr, &count));
    std::vector<cudaGraphNode_t> nodes(count);
    C10_CUDA_CHECK(cudaGraphGetNodes(graph, nodes.data(), &count));
    std::vector<std::string> names;
    for (cudaGraphNode_t node : nodes) {
      cudaGraphNodeType type{};
      C10_CUDA_CHECK(cudaGraphNodeGetType(node, &type));
      if (type == cudaGraphNodeTypeKernel) names.push_back(kernel_name(node));
      if (type == cudaGraphNodeTypeMemcpy) names.emplace_back("copy");
      if (type == cudaGraphNodeTypeMemset) names.emplace_back("fill");
    }
    return names;
  }
  /// An aborted capture throws again here.
  void end_quietly() {
    try {
      graph_.capture_end();
    } catch (const c10::Error&) {
    }
  }
  at::cuda::CUDAGraph graph_{/*keep_graph=*/true};  // kernels_of() reads the graph after the capture
  at::cuda::MempoolId_t pool_{};
  std::vector<std::string> kernels_;
};

class CudaAccelerator final : public Accelerator {
 public:
  [[nodiscard]] int num_devices() const override { return c10::cuda::device_count(); }

  [[nodiscard]] GpuTraits traits(int gpu) const override {
    cudaDeviceProp properties{};
    C10_CUDA_CHECK(cudaGetDeviceProperties(&properties, gpu));
    constexpr int kAmpere = 8;  // First with tensor cores for these types
    // In hexadecimal digits; two hosts never have the same.
    const auto bytes = std::as_bytes(std::span(properties.uuid.bytes));
    return {.name = properties.name,
            .uuid = fmt::format("{:02x}", fmt::join(bytes.begin(), bytes.end(), "")),
            .multiprocessors = properties.multiProcessorCount,
            .has_bfloat16 = properties.major >= kAmpere,
            .has_tf32 = properties.major >= kAmpere,
            .memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem),
            .pci = fmt::format("{:04x}:{:02x}:{:02x}.0", properties.pciDomainID, properties.pciBusID,
                               properties.pciDeviceID)};
  }

  [[nodiscard]] std::int64_t peak_bytes(int gpu) const override {
    using c10::CachingAllocator::StatType;
    const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu));
    return stats.allocated_bytes[static_cast<std::size_t>(StatType::AGGREGATE)].peak;
  }

  [[nodiscard]] std::int64_t used_bytes(int gpu) const override {
    // cudaMemGetInfo() asks the current device.
    const c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(gpu));
    std::size_t free = 0;
    std::size_t total = 0;
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    return static_cast<std::int64_t>(total - free);
  }

  [[nodiscard]] std::int64_t allocation_retries(int gpu) const override {
    return c10::cuda::CUDACachingAllocator::getDeviceStats(static_cast<c10::DeviceIndex>(gpu)).num_alloc_retries;
  }

  [[nodiscard]] std::string problem() const override {
    try {
      static_cast<void>(c10::cuda::device_count_ensure_non_zero());
      return {};
    } catch (const c10::Error& error) {
      return error_line(error);
    }
  }

  void release_cache() const override { c10::cuda::CUDACachingAllocator::emptyCache(); }

  void name_range(const std::string& name) const override {
    thread_local bool is_open = false;
    if (is_open) torch::profiler::impl::cudaStubs()->rangePop();
    is_open = !name.empty();
    if (is_open) torch::profiler::impl::cudaStubs()->rangePush(name.c_str());
  }

  [[nodiscard]] std::unique_ptr<DeviceGraph> record(const std::function<void()>& work, const DeviceGraph* shared,
                                                    const std::vector<at::Generator>& generators) const override {
    try {
      c10::cuda::device_synchronize();  // Capture requires an idle device
      return std::make_unique<CudaGraph>(work, static_cast<const CudaGraph*>(shared), generators);
    } catch (const c10::Error& error) {
      throw Error(fmt::format("recording a CUDA graph: {}", error_line(error)));
    }
  }

  [[nodiscard]] std::unique_ptr<Transport> connect(const NcclOptions& options) const override {
    set_unless_set(nccl_variables(options.rendezvous, options.breaker != nullptr));
    if (const std::string note = keep_block_limits(); !note.empty() && options.rank == 0)
      std::fputs((note + '\n').c_str(), stderr);
    // NCCL refuses two ranks on one GPU of one host (initTransportsRank); getHostHash() reads this variable.
    if (ranks_share_gpus()) set_unless_set({{"NCCL_HOSTID", fmt::format("rank {}", options.rank)}});
    if (options.breaker) options.breaker->include_listeners();
    try {
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(options.gpu));
      return make_pair_transport(join(options, traits(options.gpu)));
    } catch (const c10::Error& error) {
      const std::string what =
          fmt::format("rank {}: joining {} ranks over NCCL: {}", options.rank, options.world_size, error_line(error));
      if (options.breaker && dynamic_cast<const c10::DistBackendError*>(&error) != nullptr) throw PeerLostError(what);
      throw TransportError(what);
    }
  }
};

}  // namespace
}  // namespace chimera

extern "C" __attribute__((visibility("default"))) const chimera::Accelerator* chimera_accelerator_14() {
  static const chimera::CudaAccelerator accelerator;
  return &accelerator;
}
