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
  return {.on_instruction =
              [this, step](const Instruction& instruction) {
                note({RankProgress::Phase::Steps, step, instruction});
              },
          .before_wait = [this] { catch_up(); },
          .peak_memory = peak_memory_of(device_)};
}

void DeviceProgress::catch_up() {
  for (report_reached(); !waiting_.empty(); report_reached()) std::this_thread::sleep_for(kPause);
}

void DeviceProgress::report_reached() {
  for (; !waiting_.empty() && waiting_.front().mark.is_reached(); waiting_.pop_front()) {
    const auto& progress = waiting_.front().progress;
    progress ? note_progress(*progress) : note_more_progress();
  }
}

}  // namespace chimera
