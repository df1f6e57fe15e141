#pragma once

// Measures the CPU memory of each rank's tensors with the allocator hooks of LibTorch, also if ranks are threads of one
// process. The flag --tensor-memory and the tests that compare memory with the simulation use it.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>
#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "runtime/tracer.h"
#include "schedule/rank_layout.h"

namespace chimera {

/// Counts live bytes of CPU tensors by the rank that allocated them, whichever thread frees them. Counts only tensors
/// created during a Recording, and no kernel scratch memory outside LibTorch's allocator. Host copies of offloaded
/// activations do not count. Thread-safe.
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

  /// Scope in which the calling thread's allocations do not count.
  class Pause {
   public:
    Pause();

   private:
    c10::DebugInfoGuard guard_;
  };

  /// Returns the rank's live bytes, and their peak since the last take_sample().
  [[nodiscard]] MemorySample usage(RankId rank) const;
  /// Returns usage(), and starts a new peak at the current live bytes.
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

  std::shared_ptr<Ledger> ledger_;  // autograd may keep a reporter after the meter
};

}  // namespace chimera
