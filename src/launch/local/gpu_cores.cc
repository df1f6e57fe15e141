#include "launch/local/gpu_cores.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>
#include <fstream>
#include <set>

#include "core/choices.h"
#include "core/value_text.h"

namespace chimera {

std::optional<std::vector<int>> parse_core_list(const std::string& text) {
  std::set<int> cores;
  if (text.empty()) return std::vector<int>();
  for (const std::string_view range : split_at_commas(text)) {
    const auto ends = split_at('-', range);
    const auto first = parse_number<int>(ends.front());
    const auto last = parse_number<int>(ends.back());
    if (ends.size() > 2 || !first || !last || *last < *first || *last >= CPU_SETSIZE) return std::nullopt;
    for (int core = *first; core <= *last; ++core) cores.insert(core);
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
