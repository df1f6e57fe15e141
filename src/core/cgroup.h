#pragma once
// What the control groups of this process allow it: the limits of containers (`docker run --cpus=4 --memory=8g`), batch
// systems and systemd. Groups of version 1 and 2 count, the process's own and all those around it.

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

/// The smallest limits around this process; infinite where no control group sets one. `root` stands for `/`: the files
/// read lie in its `proc` and where `proc/self/mountinfo` says.
[[nodiscard]] CgroupLimits cgroup_limits(const std::filesystem::path& root = "/");

/// How many processes of this process's group the kernel has ended for want of memory so far (of the whole machine
/// where it belongs to no group). Returns nothing where the kernel does not say.
[[nodiscard]] std::optional<std::uint64_t> out_of_memory_kills(const std::filesystem::path& root = "/");

}  // namespace chimera
