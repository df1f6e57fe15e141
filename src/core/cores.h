#pragma once
// The processor and the memory as this process may use them.

#include <filesystem>

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

}  // namespace chimera
