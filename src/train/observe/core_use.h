#pragma once

// Measures how much CPU time other programs use on the cores of a run. They slow the run down, which its own
// measurements do not show. Load averages are unsuitable, because they include the run's own threads and take a minute
// to react. summary() (step_summary.h) reports the result at the end of a run.

#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// A sample of the CPU time on the cores that this process may use.
struct CoreUse {
  double time = 0;          ///< Time of the sample, from monotonic_seconds()
  double busy_seconds = 0;  ///< Time in which the cores were busy since the machine's start, added over cores
  double own_seconds = 0;   ///< CPU time of this process, over all its threads
  int cores = 0;            ///< Cores that this process may use
};

/// Returns the busy seconds of `cores` since the machine's start. `stat` is the text of /proc/stat (proc(5)). Idle time
/// and waits for disks do not count. Returns nullopt if one of the cores is missing.
[[nodiscard]] std::optional<double> busy_seconds(const std::string& stat, const std::vector<int>& cores);

/// Takes a sample; nullopt if the system does not provide these numbers.
[[nodiscard]] std::optional<CoreUse> core_use();

/// Returns the fraction of the cores' time, 0 to 1, that other jobs used between two samples of this process.
/// `own_seconds` is the CPU time of all processes of this job in between. Returns nullopt if the samples are less than
/// half a second apart, because the kernel counts in units of 10 ms.
[[nodiscard]] std::optional<double> share_of_others(const CoreUse& begin, const CoreUse& end, double own_seconds);

}  // namespace chimera
