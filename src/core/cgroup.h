#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

namespace chimera {

/// Returns how many cores this process may keep busy, at least 1, from its CPU affinity and control groups. For `root`
/// see cgroup_limits().
[[nodiscard]] int available_cores(const std::filesystem::path& root = "/");

/// Returns whether the control groups grant this process at least one core.
[[nodiscard]] bool has_whole_core(const std::filesystem::path& root = "/");

/// Returns the machine's bytes of memory and swap, used or not, or fewer if the control groups allow less.
[[nodiscard]] double available_memory_bytes(const std::filesystem::path& root = "/");

struct CgroupLimits {
  double cores = std::numeric_limits<double>::infinity();         ///< seconds of processor time per second
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< resident memory and file cache
  double swap_bytes = std::numeric_limits<double>::infinity();    ///< in addition to memory_bytes
};

/// Returns the lowest limits of this process's control groups (versions 1 and 2) and their ancestors; infinity if none
/// is set. `root` replaces `/` in all paths read.
[[nodiscard]] CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

/// Returns how many processes the kernel has killed for lack of memory in this process's group, or on the machine if
/// there is no group. Returns nothing if the kernel has no such count.
[[nodiscard]] std::optional<std::uint64_t> out_of_memory_kills(const std::filesystem::path& root = "/");

}  // namespace chimera
