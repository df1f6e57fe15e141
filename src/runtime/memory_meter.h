#pragma once

// Measures the CPU memory of each rank's tensors, also if ranks are threads of one process, by the allocator hooks of
// LibTorch. It backs --tensor-memory and the tests that compare memory with the simulation.

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Copies the numbers to `device` as flat float64, on the calling thread's current stream. Never waits for a device.
[[nodiscard]] at::Tensor on_device(std::span<const double> numbers, at::Device device);

/// Counts live bytes of CPU tensors by the rank that allocated them, whichever thread frees them. Counts only tensors
/// created during a Recording, and no kernel scratch memory outside LibTorch's allocator. Host copies of offloaded
/// activations count apart.
class MemoryMeter {
 public:
  explicit MemoryMeter(std::size_t ranks) : ledger_(std::make_shared<Ledger>(ranks)) {}

  /// Scope that counts the calling thread's allocations for `rank`, in backward too.
  class Recording {
   public:
    Recording(MemoryMeter& meter, RankId rank);

   private:
    c10::DebugInfoGuard guard_;
  };

  /// Scope that counts allocations of a recording thread as its rank's host copies.
  class HostRecording {
   public:
    HostRecording();

   private:
    std::optional<c10::DebugInfoGuard> guard_;
  };

  /// Returns the peak of the rank's live bytes.
  [[nodiscard]] std::int64_t peak_bytes(RankId rank) const;
  [[nodiscard]] std::int64_t live_bytes(RankId rank) const;
  [[nodiscard]] std::int64_t host_bytes(RankId rank) const;
  /// Returns both, and restarts the peak.
  [[nodiscard]] MemorySample take_sample(RankId rank);

 private:
  class Reporter;
  struct Block {
    std::size_t account;
    std::int64_t bytes;
  };
  struct Ledger {
    explicit Ledger(std::size_t count) : ranks(count), live(2 * count, 0), peak(2 * count, 0) {}
    std::size_t ranks;
    std::mutex mutex;
    std::unordered_map<void*, Block> blocks;
    std::vector<std::int64_t> live;  // [account]: ranks, then their host copies
    std::vector<std::int64_t> peak;  // [account]
  };

  std::shared_ptr<Ledger> ledger_;  // autograd may keep a reporter after the meter
};

}  // namespace chimera
