#pragma once

#include <cstdint>
#include <filesystem>
#include <limits>
#include <optional>

// The processor and the memory as this process may use them.

// What the control groups of this process allow it: the limits of containers (`docker run --cpus=4 --memory=8g`), batch
// systems and systemd. Groups of version 1 and 2 count, the process's own and all those around it.

namespace chimera {

/// Cores that this process may keep busy, at least 1: those that it may run on, or fewer where its control groups give
/// it less processor time (whole cores of it). `root` as cgroup_limits() has it.
[[nodiscard]] int available_cores(const std::filesystem::path& root = "/");

/// Whether its control groups give this process the time of a core at least, so that a thread which computes is not
/// made to wait by them.
[[nodiscard]] bool has_whole_core(const std::filesystem::path& root = "/");

/// Bytes that all processes here may take together, swap included: those of the machine, or fewer where the control
/// groups of this process allow less. What is in use already counts too. `root` as cgroup_limits() has it.
[[nodiscard]] double available_memory_bytes(const std::filesystem::path& root = "/");

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
