// GPUs through libtorch_cuda, ranks over c10d's NCCL backend. Built into libchimera_cuda.so, which the program opens
// only for --device cuda.
#define USE_DISTRIBUTED
#define USE_C10D_NCCL

#include "transport/accelerator.h"

#include <c10/cuda/CUDAFunctions.h>
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>

#include "core/error.h"
#include "transport/gloo/meeting_store.h"

namespace chimera {
namespace {

std::string first_line(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.substr(0, text.find('\n'));
}

/// Makes the process groups of a rank one after the other; making one waits for its other members.
class Joining {
 public:
  explicit Joining(const NcclOptions& options)
      : options_(options),
        device_(at::kCUDA, static_cast<c10::DeviceIndex>(options.rank)),
        meeting_(std::make_shared<MeetingStore>(options.meeting, options.start_up_timeout)) {}

  Communicators run() {
    Communicators to{.keep = meeting_, .rank = options_.rank, .device = device_, .groups = options_.groups};
    if (options_.world_size == 1) return to;
    to.everyone = join("everyone", options_.rank, options_.world_size);
    for (std::size_t g = 0; g < to.groups.size(); ++g) to.process_groups.push_back(join_group(g));
    for (const auto& [low, high] : options_.pairs) {
      if (options_.rank != low && options_.rank != high) continue;
      const bool is_low = options_.rank == low;
      to.pairs[is_low ? high : low] = join(fmt::format("pair{}-{}", low, high), is_low ? 0 : 1, 2);
    }
    return to;
  }

 private:
  Communicators::Group join_group(std::size_t g) {
    const auto& members = options_.groups[g];
    const auto place = std::find(members.begin(), members.end(), RankId(options_.rank));
    if (place == members.end() || members.size() == 1) return {};
    return join(fmt::format("group{}", g), static_cast<int>(place - members.begin()), static_cast<int>(members.size()));
  }

  Communicators::Group join(const std::string& name, int member, int size) {
    auto group_options = c10d::ProcessGroupNCCL::Options::create();
    group_options->group_name = name;
    auto group = c10::make_intrusive<c10d::ProcessGroupNCCL>(
        c10::make_intrusive<c10d::PrefixStore>(name, meeting_->store()), member, size, std::move(group_options));
    group->eagerConnectSingleDevice(device_);
    return group;
  }

  const NcclOptions& options_;
  at::Device device_;
  std::shared_ptr<MeetingStore> meeting_;
};

class CudaAccelerator final : public Accelerator {
 public:
  [[nodiscard]] int num_devices() const override { return c10::cuda::device_count(); }

  [[nodiscard]] std::string problem() const override {
    try {
      static_cast<void>(c10::cuda::device_count_ensure_non_zero());
      return {};
    } catch (const c10::Error& error) {
      return first_line(error);
    }
  }

  [[nodiscard]] std::unique_ptr<Transport> connect(const NcclOptions& options) const override {
    // Streams beyond this number share hardware queues, where a receive that waits would hold others back.
    ::setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
    try {
      c10::cuda::set_device(static_cast<c10::DeviceIndex>(options.rank));
      return make_pair_transport(Joining(options).run());
    } catch (const c10::Error& error) {
      throw TransportError(
          fmt::format("rank {}: joining {} ranks over NCCL: {}", options.rank, options.world_size, first_line(error)));
    }
  }
};

}  // namespace
}  // namespace chimera

extern "C" __attribute__((visibility("default"))) const chimera::Accelerator* chimera_accelerator_1() {
  static const chimera::CudaAccelerator accelerator;
  return &accelerator;
}
