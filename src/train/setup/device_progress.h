#pragma once

// Progress of a rank on a device, for hang detection. The host enqueues work far ahead of the device, so an instruction
// that the host has passed may still hang. Each note therefore marks the current stream, and counts only when the
// device reaches the mark. On the CPU, notes count at once. Trainer notes instructions, ReplicaCheck the tensors that
// it hashes.

#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "launch/flight/progress.h"
#include "runtime/step_hooks.h"
#include "transport/stream.h"

namespace chimera {

/// Reports progress (note_progress()) when the device reaches it; on the CPU immediately. Not thread-safe.
class DeviceProgress {
 public:
  static constexpr std::chrono::microseconds kPause{100};

  /// `require_peers` is Transport::require_peers(); may be empty.
  explicit DeviceProgress(at::Device device, std::function<void()> require_peers = {})
      : device_(device), require_peers_(std::move(require_peers)) {}

  /// Reports `progress` once the current stream has reached it, in a later call of note() or catch_up().
  void note(RankProgress progress) {
    progress.allocation_retries = retries_before_step_;
    add(progress);
  }
  /// Reports note_more_progress() in the same way.
  void note_more() { add(std::nullopt); }
  /// Returns hooks that note the instructions of `step` (from 1), and wait for the device with progress.
  [[nodiscard]] ObservationHooks observe(std::int64_t step);
  /// Waits until the device reaches all noted progress, and reports it meanwhile. Throws PeerLostError if a peer is
  /// lost: the device would wait for it until a timeout.
  void catch_up();
  /// Returns the number of unreached entries.
  [[nodiscard]] std::size_t behind() const { return waiting_.size(); }

 private:
  struct Noted {
    StreamMark mark;
    std::optional<RankProgress> progress;  // Empty for note_more()
  };
  void add(const std::optional<RankProgress>& progress);
  void report_reached();

  static constexpr std::chrono::seconds kBetweenChecks{1};

  at::Device device_;
  std::function<void()> require_peers_;
  std::uint32_t retries_before_step_ = 0;  // allocation_retries of the notes
  std::deque<Noted> waiting_;              // Oldest first
};

}  // namespace chimera
