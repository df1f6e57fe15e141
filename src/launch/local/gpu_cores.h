#pragma once

// The cores of a rank that uses a GPU. A rank has several threads that the GPU waits for: its own, c10d's and NCCL's.
// They should run on the NUMA node of the GPU, and each on a core of its own.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// Returns the ascending numbers of a kernel's list of CPUs such as `0-3,8`; no value if `text` is not one.
[[nodiscard]] std::optional<std::vector<int>> parse_core_list(const std::string& text);

/// Returns the cores of the NUMA node of a PCI device such as `0000:1b:00.0`, by its `local_cpulist`; none if the
/// system does not tell. `root` replaces `/`.
[[nodiscard]] std::vector<int> cores_near(const std::string& pci, const std::filesystem::path& root = "/");

/// Binds this thread and those that it starts from now on to these cores. Does nothing, and returns false, if a
/// launcher has already restricted this process to some of the machine's cores, or if none of these exist.
bool bind_to_cores(const std::vector<int>& cores);

inline constexpr std::int64_t kCoresOfGpuRank = 4;

/// Returns a line for a host whose ranks have fewer than kCoresOfGpuRank of its `cores` each; otherwise nothing.
[[nodiscard]] std::string warning_of_few_cores(std::int64_t cores, std::int64_t ranks);

}  // namespace chimera
