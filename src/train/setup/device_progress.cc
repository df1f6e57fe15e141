#include "train/setup/device_progress.h"

#include "train/setup/device.h"

namespace chimera {

void DeviceProgress::add(const std::optional<RankProgress>& progress) {
  if (device_.is_cpu()) return progress ? note_progress(*progress) : note_more_progress();
  // The list stays short: each note first removes what the device has reached.
  report_reached();
  waiting_.push_back({StreamMark(device_), progress});
}

ObservationHooks DeviceProgress::observe(std::int64_t step) {
  // The allocator counts retries from its start; a step reports the difference.
  const std::function<double()> retries = allocation_retries_of(device_);
  if (retries) retries_before_step_ = static_cast<std::uint32_t>(retries());
  return {.on_instruction =
              [this, step](const Instruction& instruction) {
                note({RankProgress::Phase::Steps, step, instruction});
              },
          .before_wait = [this] { catch_up(); },
          .peak_memory = peak_memory_of(device_),
          .allocation_retries = retries};
}

void DeviceProgress::catch_up() {
  const auto has_reached_all = [this] {
    report_reached();
    return waiting_.empty();
  };
  // Polls instead of waiting for the stream: it may wait for a lost peer, which require_peers_ notices.
  poll_until(has_reached_all, require_peers_);
}

void DeviceProgress::report_reached() {
  for (; !waiting_.empty() && waiting_.front().mark.is_reached(); waiting_.pop_front()) {
    const auto& progress = waiting_.front().progress;
    progress ? note_progress(*progress) : note_more_progress();
  }
}

}  // namespace chimera
