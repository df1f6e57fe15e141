#pragma once
// Counts the bytes of tensors that are alive, by the worker whose thread allocated them.

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <cstdint>
#include <memory>
#include <mutex>
#include <unordered_map>
#include <vector>

#include "core/ids.h"
#include "runtime/tracer.h"

namespace chimera {

/// One meter for all rank threads of a process, as a tensor made by one may be freed by another: it counts for the
/// worker that made it as long as anyone holds it. Only CPU tensors made while a Recording lives count: not what stood
/// before (weights, gradients, optimizer states), nor scratch memory that kernels take past LibTorch's allocator.
class MemoryMeter {
 public:
  explicit MemoryMeter(std::size_t workers) : ledger_(std::make_shared<Ledger>(workers)) {}

  /// While it lives, what the calling thread allocates counts for `worker`, in backward too.
  class Recording {
   public:
    Recording(MemoryMeter& meter, WorkerId worker);

   private:
    c10::DebugInfoGuard guard_;
  };

  /// Most bytes of the worker alive at once so far.
  [[nodiscard]] std::int64_t peak_bytes(WorkerId worker) const;
  /// Bytes of the worker alive now.
  [[nodiscard]] std::int64_t live_bytes(WorkerId worker) const;
  /// Both; the most is counted anew from now on.
  [[nodiscard]] MemorySample take_sample(WorkerId worker);

 private:
  class Reporter;
  struct Block {
    std::size_t worker;
    std::int64_t bytes;
  };
  struct Ledger {
    explicit Ledger(std::size_t workers) : live(workers, 0), peak(workers, 0) {}
    std::mutex mutex;
    std::unordered_map<void*, Block> blocks;
    std::vector<std::int64_t> live;  // [worker]
    std::vector<std::int64_t> peak;  // [worker]
  };

  std::shared_ptr<Ledger> ledger_;  // autograd may keep a reporter for longer than the meter lives
};

}  // namespace chimera
