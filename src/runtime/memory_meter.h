#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/rank_layout.h"

// Numbers of the host on their way to a device.

// Counts the bytes of tensors that are alive, by the rank whose thread allocated them.

namespace chimera {

/// A copy of the numbers on `device`, flat, in float64. On a device that works in streams nobody waits for it: it goes
/// through pinned memory, in the calling thread's current stream.
[[nodiscard]] at::Tensor on_device(std::span<const double> numbers, at::Device device);

/// One meter for all rank threads of a process, as a tensor made by one may be freed by another: it counts for the
/// rank that made it as long as anyone holds it. Only CPU tensors made while a Recording lives count: not what stood
/// before (weights, gradients, optimizer states), nor scratch memory that kernels take past LibTorch's allocator.
class MemoryMeter {
 public:
  explicit MemoryMeter(std::size_t ranks) : ledger_(std::make_shared<Ledger>(ranks)) {}

  /// While it lives, what the calling thread allocates counts for `rank`, in backward too.
  class Recording {
   public:
    Recording(MemoryMeter& meter, RankId rank);

   private:
    c10::DebugInfoGuard guard_;
  };

  /// Most bytes of the rank alive at once so far.
  [[nodiscard]] std::int64_t peak_bytes(RankId rank) const;
  /// Bytes of the rank alive now.
  [[nodiscard]] std::int64_t live_bytes(RankId rank) const;
  /// Returns both, and counts the peak anew from now on.
  [[nodiscard]] MemorySample take_sample(RankId rank);

 private:
  class Reporter;
  struct Block {
    std::size_t rank;
    std::int64_t bytes;
  };
  struct Ledger {
    explicit Ledger(std::size_t ranks) : live(ranks, 0), peak(ranks, 0) {}
    std::mutex mutex;
    std::unordered_map<void*, Block> blocks;
    std::vector<std::int64_t> live;  // [rank]
    std::vector<std::int64_t> peak;  // [rank]
  };

  std::shared_ptr<Ledger> ledger_;  // autograd may keep a reporter for longer than the meter lives
};

}  // namespace chimera
