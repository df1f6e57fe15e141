#include "launch/local/gpu_cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>
#include <charconv>
#include <fstream>
#include <set>

namespace chimera {

std::optional<std::vector<int>> parse_core_list(const std::string& text) {
  std::set<int> cores;
  const char* next = text.data();
  const char* const end = next + text.size();
  const auto number = [&](int& value) {
    const auto [after, error] = std::from_chars(next, end, value);
    const bool is_read = error == std::errc() && value >= 0 && value < CPU_SETSIZE;
    next = after;
    return is_read;
  };
  while (next != end) {
    int first = 0;
    if (!number(first)) return std::nullopt;
    int last = first;
    if (next != end && *next == '-' && (++next, !number(last))) return std::nullopt;
    if (last < first) return std::nullopt;
    for (int core = first; core <= last; ++core) cores.insert(core);
    if (next != end && (*next != ',' || ++next == end)) return std::nullopt;
  }
  return std::vector<int>(cores.begin(), cores.end());
}

std::vector<int> cores_near(const std::string& pci, const std::filesystem::path& root) {
  std::ifstream file(root / "sys/bus/pci/devices" / pci / "local_cpulist");
  std::string line;
  if (pci.empty() || !std::getline(file, line)) return {};
  return parse_core_list(line).value_or(std::vector<int>());
}

bool bind_to_cores(const std::vector<int>& cores) {
  cpu_set_t allowed;
  if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return false;
  // Another launcher, or the user with taskset, has already chosen cores.
  if (CPU_COUNT(&allowed) < ::sysconf(_SC_NPROCESSORS_ONLN)) return false;
  cpu_set_t chosen;
  CPU_ZERO(&chosen);
  for (const int core : cores)
    if (CPU_ISSET(core, &allowed)) CPU_SET(core, &chosen);
  return CPU_COUNT(&chosen) > 0 && ::sched_setaffinity(0, sizeof chosen, &chosen) == 0;
}

std::string warning_of_few_cores(std::int64_t cores, std::int64_t ranks) {
  if (cores >= kCoresOfGpuRank * ranks) return "";
  return fmt::format(
      "chimera: {} rank{} on {} core{}: each needs {}, for its own threads, c10d's and NCCL's; GPUs will wait for the "
      "host\n",
      ranks, ranks == 1 ? "" : "s", cores, cores == 1 ? "" : "s", kCoresOfGpuRank);
}

}  // namespace chimera
