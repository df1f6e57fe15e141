#pragma once

// The activity of a rank: its phase, step and instruction, such as `1B3 in step 4` (backward of micro-batch 3 at stage
// 1). The progress page (progress.h), in memory that the launcher shares with the ranks, has the latest activity of
// each rank. The flight recorder (flight_record.h) stores thousands of earlier ones. Messages about hangs and failures
// name the activity.

#include "schedule/program.h"

namespace chimera {

/// Activity of a rank: a phase and, within the steps, a step and an instruction.
struct RankProgress {
  enum class Phase : std::uint8_t {
    StartUp,  ///< Not connected to other ranks yet
    Joining,  ///< Waiting until the other ranks connect
    Steps,    ///< At `instruction` of `step`, or just after it
    Ending,   ///< Writing final output
  };
  Phase phase = Phase::StartUp;
  std::int64_t step = 0;                 ///< From 1; only in phase Steps
  Instruction instruction = {};          ///< Only in phase Steps
  std::uint32_t allocation_retries = 0;  ///< Retries of the GPU's memory allocator before this step
};

/// Returns `start-up`, `joining the other ranks`, `1B3 in step 4` or `its end`.
[[nodiscard]] std::string to_text(const RankProgress& progress);
/// Returns whether the rank can continue only after another rank acts.
[[nodiscard]] bool waits_for_others(const RankProgress& progress);

}  // namespace chimera
