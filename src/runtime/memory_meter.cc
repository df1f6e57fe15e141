#include "runtime/memory_meter.h"

#include <algorithm>
#include <utility>

namespace chimera {

/// Callback of LibTorch's allocator, on the allocating or freeing thread. Without a ledger, allocations do not count: a
/// block that nobody has reported is in no ledger, so its deallocation changes nothing, on whichever thread it happens.
class MemoryMeter::Reporter final : public c10::MemoryReportingInfoBase {
 public:
  explicit Reporter(std::shared_ptr<Ledger> ledger = nullptr, std::size_t rank = 0)
      : ledger_(std::move(ledger)), rank_(rank) {}

  /// `bytes` is negative for a deallocation.
  void reportMemoryUsage(void* address, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device /*device*/) override {
    if (!ledger_) return;
    const std::scoped_lock lock(ledger_->mutex);
    if (bytes > 0) {
      // By address, because the thread that frees may belong to another rank: a message that it received.
      ledger_->blocks[address] = {rank_, bytes};
      std::int64_t& live = ledger_->live[rank_];
      live += bytes;
      ledger_->peak[rank_] = std::max(ledger_->peak[rank_], live);
    } else if (const auto block = ledger_->blocks.extract(address)) {
      ledger_->live[block.mapped().rank] -= block.mapped().bytes;
    }
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return ledger_ != nullptr; }

 private:
  std::shared_ptr<Ledger> ledger_;
  std::size_t rank_;
};

MemoryMeter::Recording::Recording(MemoryMeter& meter, RankId rank)
    // LibTorch looks for a reporter in this entry of the thread's debug info. Autograd passes the info on to its own
    // threads, so backward counts too.
    : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(meter.ledger_, rank.index())) {}

MemoryMeter::Pause::Pause() : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>()) {}

MemorySample MemoryMeter::usage(RankId rank) const {
  const std::scoped_lock lock(ledger_->mutex);
  return {ledger_->live[rank.index()], ledger_->peak[rank.index()]};
}

MemorySample MemoryMeter::take_sample(RankId rank) {
  const std::scoped_lock lock(ledger_->mutex);
  const std::int64_t live = ledger_->live[rank.index()];
  return {live, std::exchange(ledger_->peak[rank.index()], live)};
}

}  // namespace chimera
