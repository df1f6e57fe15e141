#pragma once

// CPU time on the cores that a process may use, of all processes and of its own. The difference is the load of other
// programs, which slows a run down without a trace in its own measurements. Load averages cannot show it: they count
// the run's own threads, and take a minute to react. Training runs report it, and contests repeat disturbed runs.

#include <optional>
#include <string>
#include <vector>

namespace chimera {

struct CoreUse {
  double time = 0;          ///< monotonic_seconds()
  double busy_seconds = 0;  ///< Of the cores, by all processes since the machine's start
  double own_seconds = 0;   ///< Of this process and of its children that it has waited for
  int cores = 0;            ///< Cores that this process may use
};

/// Returns the busy seconds of `cores` in the text of /proc/stat; nothing if one of them is missing. Idle time and time
/// of waits for disks do not count; a guest's time is in the time of its user (proc(5)).
[[nodiscard]] std::optional<double> busy_seconds(const std::string& stat, const std::vector<int>& cores);

/// Returns the use up to now; nothing if the system does not say.
[[nodiscard]] std::optional<CoreUse> core_use();

/// Returns the share of the cores, 0 to 1, that other processes used between two samples of this process, whose job
/// used `own_seconds` on them meanwhile. Nothing for less than half a second, because the kernel counts in 10 ms.
[[nodiscard]] std::optional<double> share_of_others(const CoreUse& begin, const CoreUse& end, double own_seconds);

/// Returns the share of other processes from `begin` until now, if the job is this process and its waited-for children.
[[nodiscard]] std::optional<double> share_of_others_since(const std::optional<CoreUse>& begin);

}  // namespace chimera
