#pragma once

// Writes the metrics of a run as event files of TensorBoard, for `train --tensorboard`, without TensorFlow. Such a file
// is a sequence of records: Protocol Buffers messages with lengths and checksums.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/file_descriptor.h"
#include "telemetry/metrics.h"

namespace chimera {

/// Returns a record of a TensorBoard event file: the length of `data` (u64, little-endian), the masked CRC-32C of these
/// eight bytes, the data, and its masked CRC-32C. Source: tensorflow/core/lib/io/record_writer.h.
[[nodiscard]] std::string event_record(std::string_view data);

/// Returns the metrics of a step as an Event of tensorflow/core/util/event.proto, with scalars named as in
/// metrics.jsonl. `wall_time` counts seconds since 1970.
[[nodiscard]] std::string step_event(const StepMetrics& metrics, double wall_time);

/// Returns a restart event at `wall_time` (seconds since 1970): TensorBoard drops the numbers that earlier files of the
/// folder have for `step` and later steps. Source: SessionLog of event.proto, and _CheckForRestartAndMaybePurge of
/// tensorboard's event_accumulator.
[[nodiscard]] std::string restart_event(std::int64_t step, double wall_time);

/// Returns whether the folder has event files, of any program.
[[nodiscard]] bool has_events(const std::string& folder);

/// An open event file, for one thread. Records are written whole, and wait in memory while the disk is full (AppendFile
/// in metrics.h).
class EventFile {
 public:
  /// Creates the folder, and in it the file events.out.tfevents.TIME.HOST.PID. The file begins with the version that
  /// readers expect, then a restart_event() at `first_step` (from 1), because an earlier attempt of the run may have
  /// got further than its last checkpoint. Throws ConfigError if the file cannot be created.
  EventFile(const std::string& folder, std::int64_t first_step);
  /// Appends the event of a step, with the current time.
  void write(const StepMetrics& metrics);
  /// Throws Error if the disk still does not accept some records.
  void finish() { records_.finish(); }

 private:
  AppendFile records_;
};

}  // namespace chimera
