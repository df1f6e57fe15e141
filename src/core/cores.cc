#include "core/cores.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <thread>

#include "core/cgroup.h"

namespace chimera {

int available_cores(const std::filesystem::path& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int count = ::sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  const double allowed = std::min<double>(count, cgroup_limits(root).cores);
  return std::max(static_cast<int>(allowed), 1);
}

bool has_whole_core(const std::filesystem::path& root) { return cgroup_limits(root).cores >= 1; }

double available_memory_bytes(const std::filesystem::path& root) {
  struct sysinfo machine {};
  ::sysinfo(&machine);
  const double unit = machine.mem_unit;
  const CgroupLimits limits = cgroup_limits(root);
  return std::min(static_cast<double>(machine.totalram) * unit, limits.memory_bytes) +
         std::min(static_cast<double>(machine.totalswap) * unit, limits.swap_bytes);
}

}  // namespace chimera
