#include "runtime/memory_meter.h"

#include <ATen/ATen.h>
#include <algorithm>
#include <utility>

namespace chimera {

at::Tensor on_device(std::span<const double> numbers, at::Device device) {
  const auto options = at::TensorOptions().dtype(at::kDouble).pinned_memory(!device.is_cpu());
  const at::Tensor host = at::empty({static_cast<std::int64_t>(numbers.size())}, options);
  std::ranges::copy(numbers, host.data_ptr<double>());
  return host.to(device, /*non_blocking=*/true);
}

/// Callback of LibTorch's allocator, on the allocating or freeing thread.
class MemoryMeter::Reporter final : public c10::MemoryReportingInfoBase {
 public:
  Reporter(std::shared_ptr<Ledger> ledger, std::size_t account) : ledger_(std::move(ledger)), account_(account) {}

  /// `bytes` is negative for a deallocation.
  void reportMemoryUsage(void* address, std::int64_t bytes, std::size_t /*total_allocated*/,
                         std::size_t /*total_reserved*/, c10::Device /*device*/) override {
    const std::scoped_lock lock(ledger_->mutex);
    if (bytes > 0) {
      ledger_->blocks[address] = {account_, bytes};
      std::int64_t& live = ledger_->live[account_];
      live += bytes;
      ledger_->peak[account_] = std::max(ledger_->peak[account_], live);
    } else if (const auto block = ledger_->blocks.extract(address)) {
      ledger_->live[block.mapped().account] -= block.mapped().bytes;
    }
  }
  [[nodiscard]] bool memoryProfilingEnabled() const override { return true; }
  [[nodiscard]] std::shared_ptr<Reporter> of_host_copies() const {
    return std::make_shared<Reporter>(ledger_, ledger_->ranks + account_ % ledger_->ranks);
  }

 private:
  std::shared_ptr<Ledger> ledger_;
  std::size_t account_;
};

MemoryMeter::Recording::Recording(MemoryMeter& meter, RankId rank)
    : guard_(c10::DebugInfoKind::PROFILER_STATE, std::make_shared<Reporter>(meter.ledger_, rank.index())) {}

MemoryMeter::HostRecording::HostRecording() {
  constexpr auto kKind = c10::DebugInfoKind::PROFILER_STATE;
  const auto* reporter = dynamic_cast<const Reporter*>(c10::ThreadLocalDebugInfo::get(kKind));
  if (reporter != nullptr) guard_.emplace(kKind, reporter->of_host_copies());
}

std::int64_t MemoryMeter::peak_bytes(RankId rank) const {
  const std::scoped_lock lock(ledger_->mutex);
  return ledger_->peak[rank.index()];
}

std::int64_t MemoryMeter::live_bytes(RankId rank) const {
  const std::scoped_lock lock(ledger_->mutex);
  return ledger_->live[rank.index()];
}

std::int64_t MemoryMeter::host_bytes(RankId rank) const {
  const std::scoped_lock lock(ledger_->mutex);
  return ledger_->live[ledger_->ranks + rank.index()];
}

MemorySample MemoryMeter::take_sample(RankId rank) {
  const std::scoped_lock lock(ledger_->mutex);
  const std::int64_t live = ledger_->live[rank.index()];
  return {live, std::exchange(ledger_->peak[rank.index()], live)};
}

}  // namespace chimera
