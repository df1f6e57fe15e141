#pragma once

// Measures how much other programs use the cores of this process: the CPU time of all processes on these cores, minus
// the CPU time of this process's job. Other programs slow a run down, and its step times do not show why. Load averages
// do not show it either: they count the run's own threads, and take a minute to react. Training runs report this load,
// and `chimera bench` repeats disturbed runs.

#include <sys/types.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// A process of the machine.
struct ProcessUse {
  pid_t parent = 0;
  std::string name;        ///< At most 15 characters, as in `ps -o comm`
  double cpu_seconds = 0;  ///< Since the start of the process
};

/// CPU time so far on the cores that this process may use.
struct CoreUse {
  double time = 0;          ///< monotonic_seconds() of the sample
  double busy_seconds = 0;  ///< CPU seconds of all processes on these cores since the machine's start
  double own_seconds = 0;   ///< CPU seconds of this process and of its children that it has waited for
  int cores = 0;            ///< Cores that this process may use
  std::map<pid_t, ProcessUse> processes = {};  ///< All processes of the machine
};

/// Returns the busy seconds of `cores` since the machine's start. `stat` is the text of /proc/stat (proc(5)). Idle time
/// and waits for disks do not count. Returns nullopt if `cores` is empty, or if the text lacks one of the cores or some
/// of its times.
[[nodiscard]] std::optional<double> busy_seconds(const std::string& stat, const std::vector<int>& cores);

/// Takes a sample. Returns nullopt if /proc/stat cannot be read, or does not have the cores that this process may use.
[[nodiscard]] std::optional<CoreUse> sample_core_use();

/// Returns the fraction of the cores' time, 0 to 1, that other jobs used between two samples of one process.
/// `own_seconds` is the CPU time of all processes of this job in between. Returns nullopt if the samples are less than
/// half a second apart, because the kernel counts in units of 10 ms.
[[nodiscard]] std::optional<double> load_of_others(const CoreUse& begin, const CoreUse& end, double own_seconds);

/// Returns the CPU seconds that a job, a launcher and its ranks, used between two samples. The job consists of the
/// process `member`, its ancestors as long as they have its name, and all processes below them.
[[nodiscard]] double job_seconds(const CoreUse& begin, const CoreUse& end, pid_t member);

/// Returns the process outside of the job of `member` that used the cores most between two samples, such as `python3
/// (process 71), 98 % of a core`. Empty if none used a tenth of a core.
[[nodiscard]] std::string busiest_other(const CoreUse& begin, const CoreUse& end, pid_t member);

/// Returns the fraction of the cores' time, 0 to 1, that other processes used from `begin` until now. Requires that the
/// job consists of this process and of children that it has waited for, because own_seconds counts only these. Returns
/// nullopt if `begin` is nullopt, if sample_core_use() returns nullopt now, or if less than half a second has passed.
[[nodiscard]] std::optional<double> load_of_others_since(const std::optional<CoreUse>& begin);

}  // namespace chimera
