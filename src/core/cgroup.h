#pragma once
// The cores and the memory of the machine that this process may use. Container runtimes, Slurm and systemd limit both
// with control groups (cgroups). The number of threads per rank and the defaults of the planner follow from the limits.
// The launcher also calls out_of_memory_kills() to explain why a rank was killed.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

namespace chimera {

/// Returns the number of cores that this process may use, at least 1: the lower of its CPU affinity and the quota of
/// its control groups, rounded down. Tests pass a folder with a copy of the system's files as `root`, here and below.
#ifdef __EMSCRIPTEN__
[[nodiscard]] inline int available_cores() { return 1; }  // A page has no threads
#else
[[nodiscard]] int available_cores(const std::filesystem::path& root = "/");
#endif

/// Returns whether the quota of the control groups is at least one core; ignores the CPU affinity.
[[nodiscard]] bool has_whole_core(const std::filesystem::path& root = "/");

/// Returns the bytes of memory plus swap that this process may use, including memory that is already in use: the total
/// of the machine or, if lower, the limits of its control groups.
[[nodiscard]] double available_memory_bytes(const std::filesystem::path& root = "/");

/// Limits of control groups; infinity if there is none.
struct CgroupLimits {
  double cores = std::numeric_limits<double>::infinity();         ///< CPU seconds per second
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< Resident memory and file cache
  double swap_bytes = std::numeric_limits<double>::infinity();    ///< In addition to memory_bytes
};

/// Returns the lowest limits of this process's control groups (versions 1 and 2) and their ancestors; infinity if no
/// limit is set. `root` replaces `/` in all paths that the function reads.
[[nodiscard]] CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

/// Returns the number of processes that the kernel has killed so far for lack of memory: in this process's control
/// group or, if the group has no such counter, on the whole machine. Returns nullopt if neither has a counter.
[[nodiscard]] std::optional<std::uint64_t> out_of_memory_kills(const std::filesystem::path& root = "/");

}  // namespace chimera
