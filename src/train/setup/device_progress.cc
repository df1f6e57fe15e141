#include "train/setup/device_progress.h"

#include <thread>

#include "launch/local/rank.h"

namespace chimera {

void DeviceProgress::note(const RankProgress& progress) {
  if (device_.is_cpu()) return note_progress(progress);
  look();
  waiting_.push_back({StreamMark(device_), progress});
}

void DeviceProgress::note_more() {
  if (device_.is_cpu()) return note_more_progress();
  look();
  waiting_.push_back({StreamMark(device_), std::nullopt});
}

void DeviceProgress::catch_up() {
  for (look(); !waiting_.empty(); look()) std::this_thread::sleep_for(kPause);
}

void DeviceProgress::look() {
  for (; !waiting_.empty() && waiting_.front().mark.is_reached(); waiting_.pop_front()) {
    const auto& progress = waiting_.front().progress;
    progress ? note_progress(*progress) : note_more_progress();
  }
}

}  // namespace chimera
