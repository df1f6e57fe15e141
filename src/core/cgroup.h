#pragma once
// What the control groups of this process allow it: the limits of containers (`docker run --cpus=4 --memory=8g`),
// batch systems and systemd. Control groups of version 1 and 2, the process's own group and all those around it.

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

namespace chimera {

struct CgroupLimits {
  double cores = std::numeric_limits<double>::infinity();         ///< processor time a second, of all cores together
  double memory_bytes = std::numeric_limits<double>::infinity();  ///< resident and in the file cache
  double swap_bytes = std::numeric_limits<double>::infinity();    ///< on top of them
};

/// The smallest limits around this process; none where there are no control groups. `root` stands for `/`: the files
/// read lie in its `proc` and where `proc/self/mountinfo` says.
[[nodiscard]] CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

/// How many processes of this process's group the kernel has ended for want of memory so far (of the whole machine
/// where it belongs to no group). Nothing where the kernel does not tell.
[[nodiscard]] std::optional<std::uint64_t> out_of_memory_kills(const std::filesystem::path& root = "/");

}  // namespace chimera
