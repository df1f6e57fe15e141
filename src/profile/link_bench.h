#pragma once

#include <string>
#include <vector>

#include "bench/statistics.h"
#include "plan/machine.h"
#include "profile/lockstep.h"
#include "transport/transport.h"

// Messages and sums between two real processes.

// Measured links in words.

// Links between two nodes, measured by a process on each of them.

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

/// alpha and beta in a row of a table.
[[nodiscard]] std::string link_line(const char* name, const LinkTimes& link);
/// How far lines are from what was measured at each size, in per cent: a row for messages, and one for sums.
[[nodiscard]] std::string fit_lines_of(const LinkSamples& links, const LinkTimes& messages, const LinkTimes& sums);

/// Between two hosts: one of two ranks, each on one of them, over a transport with profile_groups() that shares no
/// memory. Takes about so many seconds, on a slow network a few times as many. Rank 0 gets what was measured.
[[nodiscard]] LinkSamples measure_between_hosts(Transport& transport, int rank, double seconds);
/// Lines from the shortest to the longest of them.
[[nodiscard]] NodeLinks fit_links(const LinkSamples& links);
[[nodiscard]] std::string to_text(const NodeLinks& links);
/// The fitted lines, and how far they are off.
[[nodiscard]] std::string to_text(const LinkSamples& links);

}  // namespace chimera
