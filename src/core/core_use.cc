#include "core/core_use.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <numeric>
#include <sstream>

#include "core/clock.h"

namespace chimera {
namespace {

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// Cores outside the affinity mask cannot slow this process, so only these count.
std::vector<int> own_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  std::vector<int> cores;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) return cores;
  for (int core = 0; core < CPU_SETSIZE; ++core) {
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  }
  return cores;
}

}  // namespace

// A line `cpuN` of /proc/stat counts clock ticks since boot. Idle time and waits for disks do not count as busy, and
// guest time is part of user time already.
std::optional<double> busy_seconds(const std::string& stat, const std::vector<int>& cores) {
  double ticks = 0;
  std::size_t found = 0;
  std::istringstream lines(stat);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name;
    words >> name;
    if (!name.starts_with("cpu") || name == "cpu") continue;
    if (std::ranges::find(cores, std::atoi(name.c_str() + 3)) == cores.end()) continue;
    // user, nice, system, idle, iowait, irq, softirq, steal, guest, guest_nice
    const std::vector<double> times(std::istream_iterator<double>(words), {});
    if (times.size() < 8) return std::nullopt;
    ticks += std::accumulate(times.begin(), times.begin() + 8, 0.0) - times[3] - times[4];
    ++found;
  }
  // A core may have been taken offline.
  if (found == 0 || found < cores.size()) return std::nullopt;
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

std::optional<CoreUse> sample_core_use() {
  std::ifstream file("/proc/stat");
  const std::string stat{std::istreambuf_iterator<char>(file), {}};
  const std::vector<int> cores = own_cores();
  const auto busy = busy_seconds(stat, cores);
  if (!busy) return std::nullopt;
  return CoreUse{.time = monotonic_seconds(),
                 .busy_seconds = *busy,
                 .own_seconds = cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN),
                 .cores = static_cast<int>(cores.size())};
}

// Counters advance in ticks of 10 ms, so over less than half a second the difference is mostly rounding.
std::optional<double> load_of_others(const CoreUse& begin, const CoreUse& end, double own_seconds) {
  const double elapsed = end.time - begin.time;
  if (elapsed < 0.5) return std::nullopt;
  const double others = end.busy_seconds - begin.busy_seconds - own_seconds;
  return std::clamp(others / (elapsed * end.cores), 0.0, 1.0);
}

std::optional<double> load_of_others_since(const std::optional<CoreUse>& begin) {
  const auto end = begin ? sample_core_use() : std::nullopt;
  return end ? load_of_others(*begin, *end, end->own_seconds - begin->own_seconds) : std::nullopt;
}

}  // namespace chimera
