#pragma once
// Messages and sums between two real processes.

#include <vector>

#include "bench/line_fit.h"
#include "plan/machine.h"
#include "profile/lockstep.h"

namespace chimera {

/// What ranks 0 and 1 measured over some sizes. Of messages the lower quartiles, as other programs' turns only lengthen
/// them; of sums, in which several threads of both ranks take turns themselves, the medians.
struct LinkSamples {
  std::vector<TimedSize> messages;  // one way
  std::vector<TimedSize> sums;      // of both ranks
  double at_once = 0;               // by what share a sum takes longer beside another one, between hosts
  LinkTimes copies = {};            // what a message takes of the processor at each of its ends, between hosts
  double step_overhead = 0;         // MachineProfile::step_overhead, between hosts
};

/// Sends messages of 1 KiB .. 4 MiB to and fro, and sums 1 KiB .. 64 MiB, in rounds over the sizes, for `seconds`. The
/// first size that takes a quarter of that, and more than a moment, twice in a row is the largest, so that a slow
/// network takes a few times as long. `group` is the transport's group of ranks 0 and 1. All ranks call it; the result
/// is rank 0's.
[[nodiscard]] LinkSamples measure_links(Lockstep& ranks, ParameterGroupId group, double seconds);

/// What a small message takes more, in the mean, while all ranks but 0 and 1 compute: with as many of them as there are
/// cores, whoever sends or receives waits for one. All ranks call it; the result is rank 0's.
[[nodiscard]] double measure_busy_delay(Lockstep& ranks, double seconds);

/// What the line says of messages; and of sums, by the formula of LinkTimes for two workers.
[[nodiscard]] LinkTimes as_messages(const Line& line);
[[nodiscard]] LinkTimes as_messages(const BurstLine& line);
[[nodiscard]] LinkTimes as_sums(const Line& line);

}  // namespace chimera
