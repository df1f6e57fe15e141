#pragma once

// Steps that a run leaves out: it computes them, but does not update weights, because their mini-batches led to a loss
// spike (--spike). When LossGuard detects a spike, it writes the range of steps to a file in the checkpoint folder and
// ends the attempt. The next attempt reads the file (Job::left_out).

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace chimera {

/// First and last of a range of steps, from 1.
using LeftOutSteps = std::pair<std::int64_t, std::int64_t>;

/// JSON file with pairs of numbers and its own hash.
inline constexpr const char* kLeftOutName = "left-out.json";

/// Returns the ranges in a checkpoint folder, in order of detection; empty without a file. Throws ConfigError for a
/// file that write_left_out() has not written.
[[nodiscard]] std::vector<LeftOutSteps> read_left_out(const std::string& folder);
/// Writes the file atomically, and waits until it is on the disk. Throws CheckpointError if it cannot be written.
void write_left_out(const std::string& folder, const std::vector<LeftOutSteps>& ranges);
/// Removes the file, if it exists. Throws ConfigError if it cannot be removed.
void forget_left_out(const std::string& folder);

/// Returns whether one of the ranges contains `step`, from 1.
[[nodiscard]] bool leaves_out(const std::vector<LeftOutSteps>& ranges, std::int64_t step);

}  // namespace chimera
