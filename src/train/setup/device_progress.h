#pragma once

// Progress of a rank on a device, for hang detection (launch/flight/hang.h). The host enqueues work far ahead of the
// device, so an instruction that the host has passed may still hang on the device. Therefore each note of progress
// records a mark (event) in the current stream, and counts only when the device reaches the mark. On the CPU, notes
// count at once. Trainer notes instructions, and ReplicaCheck the tensors that it hashes.

#include <deque>

#include "launch/flight/progress.h"
#include "runtime/step_hooks.h"
#include "transport/stream.h"

namespace chimera {

/// Calls note_progress() (launch/flight/progress.h), which the hang detection reads, when the device reaches the noted
/// progress; on the CPU at once. Not thread-safe.
class DeviceProgress {
 public:
  /// `require_peers` throws PeerLostError if a peer is lost (Transport::require_peers()). catch_up() calls it about
  /// once per second. May be empty.
  explicit DeviceProgress(at::Device device, std::function<void()> require_peers = {})
      : device_(device), require_peers_(std::move(require_peers)) {}

  /// On a device, records a mark in the current stream. The first later call of note(), note_more() or catch_up() that
  /// finds the mark reached passes `progress` to note_progress().
  void note(RankProgress progress) {
    progress.allocation_retries = retries_before_step_;
    add(progress);
  }
  /// Same, but for progress within the latest activity: when the mark is reached, note_more_progress() is called.
  void note_more() { add(std::nullopt); }
  /// Returns hooks for the executor: they note each instruction of `step` (from 1), and call catch_up() before the host
  /// waits for the device. Also reads how often the GPU's memory allocator had to free its cache so far; this number is
  /// part of all notes until the next call. The hooks refer to this object, which must outlive them.
  [[nodiscard]] ObservationHooks observe(std::int64_t step);
  /// Waits until the device has reached all marks, and reports their progress meanwhile. Throws PeerLostError if a peer
  /// is lost, because the device would wait for the peer until a timeout.
  void catch_up();
  /// Returns the number of notes that the device has not reached.
  [[nodiscard]] std::size_t behind() const { return waiting_.size(); }

 private:
  struct Noted {
    StreamMark mark;
    std::optional<RankProgress> progress;  // Empty for note_more()
  };
  void add(const std::optional<RankProgress>& progress);
  void report_reached();

  at::Device device_;
  std::function<void()> require_peers_;
  std::uint32_t retries_before_step_ = 0;  // Retries of the GPU's memory allocator before the step of observe()
  std::deque<Noted> waiting_;              // Oldest first
};

}  // namespace chimera
