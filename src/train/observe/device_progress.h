#pragma once
// Progress of a rank on a device, for hang detection. The host runs far ahead of the device and waits at the end of the
// step.

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
  /// Polling interval of catch_up().
  static constexpr std::chrono::microseconds kPause{100};

  explicit DeviceProgress(at::Device device) : device_(device) {}

  /// Reports `progress` after all work submitted to the current stream so far, in a later call of note() or catch_up().
  void note(const RankProgress& progress);
  /// The same for note_more_progress().
  void note_more();
  /// Waits until the device reaches all noted progress, and reports it meanwhile. A later wait for results is then no
  /// apparent hang.
  void catch_up();
  /// Returns the number of unreached entries.
  [[nodiscard]] std::size_t behind() const { return waiting_.size(); }

 private:
  struct Noted {
    StreamMark mark;
    std::optional<RankProgress> progress;  // Empty: more of the last activity
  };
  void look();

  at::Device device_;
  std::deque<Noted> waiting_;  // Oldest first
};

}  // namespace chimera
