#pragma once

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

/// Returns an Event of tensorflow/core/util/event.proto, with scalars named as in metrics.jsonl. `wall_time` is in
/// seconds since 1970.
[[nodiscard]] std::string step_event(const StepMetrics& metrics, double wall_time);

/// A new TensorBoard event file. Records are never partially written (see RecordFile).
class EventFile {
 public:
  /// Creates the folder if necessary, and events.out.tfevents.TIME.HOST.PID in it. Throws ConfigError if this fails.
  explicit EventFile(const std::string& folder);
  void write(const StepMetrics& metrics);
  /// Throws the errors of RecordFile::finish().
  void finish() { records_.finish(); }

 private:
  RecordFile records_;
};

}  // namespace chimera
