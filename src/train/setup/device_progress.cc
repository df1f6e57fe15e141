#include "train/setup/device_progress.h"

#include <thread>

#include "launch/local/rank.h"
#include "train/setup/device.h"

namespace chimera {

void DeviceProgress::add(const std::optional<RankProgress>& progress) {
  if (device_.is_cpu()) return progress ? note_progress(*progress) : note_more_progress();
  // The list stays short: each note first removes what the device has reached.
  report_reached();
  waiting_.push_back({StreamMark(device_), progress});
}

ObservationHooks DeviceProgress::observe(std::int64_t step) {
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
  auto next_check = std::chrono::steady_clock::now();
  for (report_reached(); !waiting_.empty(); report_reached()) {
    if (require_peers_ && std::chrono::steady_clock::now() >= next_check) {
      require_peers_();
      next_check += kBetweenChecks;
    }
    std::this_thread::sleep_for(kPause);
  }
}

void DeviceProgress::report_reached() {
  for (; !waiting_.empty() && waiting_.front().mark.is_reached(); waiting_.pop_front()) {
    const auto& progress = waiting_.front().progress;
    progress ? note_progress(*progress) : note_more_progress();
  }
}

}  // namespace chimera
