#pragma once

// TensorBoard event files, for `--tensorboard`. The format is small enough to write without TensorFlow: framed Protocol
// Buffers messages with checksums.

#include <sys/types.h>

#include <string>
#include <string_view>

#include "core/file_descriptor.h"
#include "telemetry/metrics.h"

namespace chimera {

/// Returns a record of a TensorBoard event file: the length of `data` (u64, little-endian), the masked CRC-32C of these
/// eight bytes, the data, and its masked CRC-32C. Source: tensorflow/core/lib/io/record_writer.h.
[[nodiscard]] std::string event_record(std::string_view data);

/// Returns an Event of tensorflow/core/util/event.proto, with scalars named as in metrics.jsonl. `wall_time` counts
/// seconds since 1970.
[[nodiscard]] std::string step_event(const StepMetrics& metrics, double wall_time);

/// TensorBoard event file of whole records (see AppendFile).
class EventFile {
 public:
  /// Creates events.out.tfevents.TIME.HOST.PID, and the folder. Throws ConfigError.
  explicit EventFile(const std::string& folder);
  void write(const StepMetrics& metrics);
  /// Throws as AppendFile::finish() does.
  void finish() { records_.finish(); }

 private:
  AppendFile records_;
};

}  // namespace chimera
