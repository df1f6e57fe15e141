#pragma once
// Progress of a rank on a device, for hang detection. The host runs far ahead of the device.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <deque>
#include <optional>

#include "launch/flight/progress.h"
#include "transport/stream.h"

namespace chimera {

/// Reports progress (note_progress()) when the device reaches it; on the CPU immediately. Not thread-safe.
class DeviceProgress {
 public:
  static constexpr std::chrono::microseconds kPause{100};

  explicit DeviceProgress(at::Device device) : device_(device) {}

  /// Reports `progress` once the current stream has reached it, in a later call of note() or catch_up().
  void note(const RankProgress& progress);
  /// Reports note_more_progress() in the same way.
  void note_more();
  /// Waits until the device reaches all noted progress, and reports it meanwhile.
  void catch_up();
  /// Returns the number of unreached entries.
  [[nodiscard]] std::size_t behind() const { return waiting_.size(); }

 private:
  struct Noted {
    StreamMark mark;
    std::optional<RankProgress> progress;  // Empty for note_more()
  };
  void look();

  at::Device device_;
  std::deque<Noted> waiting_;  // Oldest first
};

}  // namespace chimera
