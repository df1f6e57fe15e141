#pragma once
// What a rank on a device is doing, for those who watch whether it hangs: a host that gives work to a device is far
// ahead of it, and waits at the end of the step while the device still computes.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <deque>

#include "launch/flight/progress.h"
#include "transport/stream.h"

namespace chimera {

/// Notes progress (note_progress()) when the device has come to it. On the CPU that is at once. One thread.
class DeviceProgress {
 public:
  /// How long catch_up() sleeps between two looks at the device.
  static constexpr std::chrono::microseconds kPause{100};

  explicit DeviceProgress(at::Device device) : device_(device) {}

  /// Notes `progress` once the device has done all that the calling thread's current stream was given before; some
  /// later call of note() or catch_up() finds out.
  void note(const RankProgress& progress);
  /// Waits until the device has come to all that was noted, and notes each when it has: whoever then waits for the
  /// device's results has been seen to go on as long as the device does.
  void catch_up();
  /// What is waiting for the device.
  [[nodiscard]] std::size_t behind() const { return waiting_.size(); }

 private:
  struct Noted {
    StreamMark mark;
    RankProgress progress;
  };
  void look();

  at::Device device_;
  std::deque<Noted> waiting_;  // oldest first
};

}  // namespace chimera
