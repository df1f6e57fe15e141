#pragma once

// The activity of a rank: its phase, step and instruction. The progress page (progress.h) holds the latest activity of
// each rank, the flight recorder (flight_record.h) its last thousands, and messages about hangs and failures name it.

#include <cstdint>
#include <string>

#include "schedule/program.h"

namespace chimera {

struct RankProgress {
  enum class Phase : std::uint8_t {
    StartUp,  ///< without other ranks
    Joining,  ///< waiting for the other ranks
    Steps,    ///< at `instruction` of `step`, or just after it
    Ending,   ///< Writing final output
  };
  Phase phase = Phase::StartUp;
  std::int64_t step = 0;  ///< from 1
  Instruction instruction = {};
  std::uint32_t allocation_retries = 0;  ///< of the GPU's allocator before this step
};

/// Returns `start-up`, `joining the other ranks`, `1B3 in step 4` or `its end`.
[[nodiscard]] std::string to_text(const RankProgress& progress);
/// Returns whether the rank can continue only after another rank acts.
[[nodiscard]] bool waits_for_others(const RankProgress& progress);

}  // namespace chimera
