#pragma once
// What this process may use of the machine: cores and memory, as container runtimes, Slurm and systemd limit them by
// control groups. The launcher chooses threads per rank from it, and the planner's defaults and the message about a
// killed rank use it.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

namespace chimera {

/// Returns the number of cores that this process may use, at least 1: the lower of its CPU affinity and the quota of
/// its control groups, rounded down. For `root` see cgroup_limits().
#ifdef __EMSCRIPTEN__
[[nodiscard]] inline int available_cores() { return 1; }  // A page has no threads
#else
[[nodiscard]] int available_cores(const std::filesystem::path& root = "/");
#endif

/// Returns whether the control groups grant this process at least one core; ignores the CPU affinity.
[[nodiscard]] bool has_whole_core(const std::filesystem::path& root = "/");

/// Returns the bytes of memory plus swap that this process may use: the machine's total or, if lower, the limits of its
/// control groups. Memory in use counts too.
[[nodiscard]] double available_memory_bytes(const std::filesystem::path& root = "/");

struct CgroupLimits {
  double cores = std::numeric_limits<double>::infinity();         ///< CPU seconds per second
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< Resident memory and file cache
  double swap_bytes = std::numeric_limits<double>::infinity();    ///< In addition to memory_bytes
};

/// Returns the lowest limits of this process's control groups (versions 1 and 2) and their ancestors; infinity if no
/// limit is set. `root` replaces `/` in all paths read.
[[nodiscard]] CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

/// Returns how many processes of this process's control group the kernel has killed for lack of memory, or of the whole
/// machine if the group has no count. Returns nothing if the kernel has no such count.
[[nodiscard]] std::optional<std::uint64_t> out_of_memory_kills(const std::filesystem::path& root = "/");

}  // namespace chimera
