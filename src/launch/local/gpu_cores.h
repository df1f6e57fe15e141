#pragma once

// Chooses the CPU cores of a rank that uses a GPU. The GPU waits for several threads of its rank: the rank's own, and
// those of c10d and NCCL. They should run on the NUMA node of the GPU, and each on a core of its own.

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace chimera {

/// Returns the numbers in a kernel's list of CPUs such as `0-3,8`, ascending; nullopt if `text` is not such a list.
[[nodiscard]] std::optional<std::vector<int>> parse_core_list(const std::string& text);

/// Returns the cores of the NUMA node of a PCI device such as `0000:1b:00.0`, by its `local_cpulist`; empty if this
/// file is missing or malformed. `root` replaces `/`.
[[nodiscard]] std::vector<int> cores_near(const std::string& pci, const std::filesystem::path& root = "/");

/// Binds this thread and those that it starts from now on to these cores. Does nothing, and returns false, if a
/// launcher has already restricted this process to some of the machine's cores, or if none of these exist.
bool bind_to_cores(const std::vector<int>& cores);

/// Cores that a rank with a GPU should have.
inline constexpr std::int64_t kCoresOfGpuRank = 4;

/// Returns a line for a host whose ranks have fewer than kCoresOfGpuRank of its `cores` each; otherwise nothing.
[[nodiscard]] std::string warning_of_few_cores(std::int64_t cores, std::int64_t ranks);

}  // namespace chimera
