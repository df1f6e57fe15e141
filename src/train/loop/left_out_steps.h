#pragma once
// Steps of a run that make no update, as their mini-batches led to a spike of the loss: --spike. They stand in a file
// in the folder of its checkpoints, so that every later start leaves them out as well.

#include <cstdint>
#include <string>
#include <vector>

namespace chimera {

/// Steps in a row, counted from 1, both ends included.
struct LeftOutSteps {
  std::int64_t first = 0;
  std::int64_t last = 0;
  [[nodiscard]] bool contains(std::int64_t step) const { return first <= step && step <= last; }
  friend bool operator==(const LeftOutSteps&, const LeftOutSteps&) = default;
};

/// What read_left_out() reads: a JSON object with ranges as pairs of numbers, and the hash of itself.
inline constexpr const char* kLeftOutName = "left-out.json";

/// The ranges that the file in a folder of checkpoints names, in the order in which they were met; none where there is
/// no file. Throws ConfigError where it is not one that write_left_out() has written.
[[nodiscard]] std::vector<LeftOutSteps> read_left_out(const std::string& folder);
/// Writes the file, whole or not at all. Throws ConfigError where it cannot be written.
void write_left_out(const std::string& folder, const std::vector<LeftOutSteps>& ranges);
/// Removes the file, where there is one, for a run that begins anew.
void forget_left_out(const std::string& folder);

/// Whether one of them has the step.
[[nodiscard]] bool leaves_out(const std::vector<LeftOutSteps>& ranges, std::int64_t step);

}  // namespace chimera
