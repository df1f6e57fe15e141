#pragma once
// Metrics as TensorBoard reads them.

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "core/file_descriptor.h"
#include "telemetry/metrics.h"

namespace chimera {

/// One record of an event file: the length of `data` (u64, little-endian), the masked CRC-32C of these eight bytes, the
/// data, and its masked CRC-32C. Source: tensorflow/core/lib/io/record_writer.h.
[[nodiscard]] std::string event_record(std::string_view data);

/// The step's numbers as an Event of tensorflow/core/util/event.proto: one scalar for each number of metrics.jsonl, by
/// its name there. `wall_time` in seconds since 1970.
[[nodiscard]] std::string step_event(const StepMetrics& metrics, double wall_time);

/// A new event file in a folder. Each record is written by one system call, so that no ending of the run cuts it.
class EventFile {
 public:
  /// Makes the folder where it does not exist, and in it events.out.tfevents.TIME.HOST.PID, which begins with the
  /// version of its format. Throws ConfigError where they cannot be made.
  explicit EventFile(const std::string& folder);
  /// Adds the step, as RecordFile::add() does.
  void write(const StepMetrics& metrics);
  /// Does what RecordFile::finish() does.
  void finish() { records_.finish(); }

 private:
  RecordFile records_;
};

}  // namespace chimera
