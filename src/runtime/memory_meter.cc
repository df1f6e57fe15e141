#include "runtime/memory_meter.h"

#include <algorithm>
#include <utility>

namespace chimera {

/// What LibTorch's allocator calls, on whichever thread allocates or frees.
class MemoryMeter::Reporter final : public c10::MemoryReportingInfoBase {
 public:
  Reporter(std::shared_ptr<Ledger> ledger, WorkerId worker) : ledger_(std::move(ledger)), worker_(worker.index()) {}

  /// `bytes` is negative where memory is freed.
  void reportMemoryUsage(void* address, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device /*device*/) override {
    const std::scoped_lock lock(ledger_->mutex);
    if (bytes > 0) {
      ledger_->blocks[address] = {worker_, bytes};
      std::int64_t& live = ledger_->live[worker_];
      live += bytes;
      ledger_->peak[worker_] = std::max(ledger_->peak[worker_], live);
    } else if (const auto block = ledger_->blocks.extract(address)) {
      ledger_->live[block.mapped().worker] -= block.mapped().bytes;
    }
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }

 private:
  std::shared_ptr<Ledger> ledger_;
  std::size_t worker_;
};

MemoryMeter::Recording::Recording(MemoryMeter& meter, WorkerId worker)
    : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(meter.ledger_, worker)) {}

std::int64_t MemoryMeter::peak_bytes(WorkerId worker) const {
  const std::scoped_lock lock(ledger_->mutex);
  return ledger_->peak[worker.index()];
}

std::int64_t MemoryMeter::live_bytes(WorkerId worker) const {
  const std::scoped_lock lock(ledger_->mutex);
  return ledger_->live[worker.index()];
}

MemorySample MemoryMeter::take_sample(WorkerId worker) {
  const std::scoped_lock lock(ledger_->mutex);
  const std::int64_t live = ledger_->live[worker.index()];
  return {live, std::exchange(ledger_->peak[worker.index()], live)};
}

}  // namespace chimera
