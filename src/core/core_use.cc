#include "core/core_use.h"

#include <fmt/format.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <set>
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
  for (int core = 0; core < CPU_SETSIZE; ++core)
    if (CPU_ISSET(core, &set)) cores.push_back(core);
  return cores;
}

// The name stands in parentheses and may have any letters (proc(5)).
std::map<pid_t, ProcessUse> all_processes() {
  std::map<pid_t, ProcessUse> found;
  std::error_code none;
  for (const auto& entry : std::filesystem::directory_iterator("/proc", none)) {
    const pid_t process = std::atoi(entry.path().filename().c_str());
    std::ifstream file(entry.path() / "stat");
    std::string line;
    if (process == 0 || !std::getline(file, line)) continue;
    const auto begin = line.find('(');
    const auto end = line.rfind(')');
    if (begin == line.npos || end == line.npos) continue;
    std::istringstream words(line.substr(end + 1));
    char state = ' ';
    ProcessUse use{.name = line.substr(begin + 1, end - begin - 1)};
    words >> state >> use.parent;
    std::string skipped;
    for (int field = 5; field < 14; ++field) words >> skipped;
    double user = 0;
    double system = 0;
    if (words >> user >> system) use.cpu_seconds = (user + system) / static_cast<double>(::sysconf(_SC_CLK_TCK));
    found.emplace(process, std::move(use));
  }
  return found;
}

double seconds_between(const CoreUse& begin, const CoreUse& end, pid_t process) {
  const auto before = begin.processes.find(process);
  return end.processes.at(process).cpu_seconds - (before == begin.processes.end() ? 0 : before->second.cpu_seconds);
}

/// Returns the processes of the job of `member`, as job_seconds() defines it.
std::set<pid_t> job_of(const CoreUse& use, pid_t member) {
  const auto get = [&](pid_t process) {
    const auto found = use.processes.find(process);
    return found == use.processes.end() ? ProcessUse() : found->second;
  };
  pid_t top = member;
  while (get(top).parent > 0 && get(get(top).parent).name == get(member).name) top = get(top).parent;
  std::set<pid_t> job = {top};
  for (const auto& [process, ignored] : use.processes) {
    pid_t above = process;
    while (above > 0 && above != top) above = get(above).parent;
    if (above == top) job.insert(process);
  }
  return job;
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
                 .cores = static_cast<int>(cores.size()),
                 .processes = all_processes()};
}

// Counters advance in ticks of 10 ms, so over less than half a second the difference is mostly rounding.
std::optional<double> load_of_others(const CoreUse& begin, const CoreUse& end, double own_seconds) {
  const double elapsed = end.time - begin.time;
  if (elapsed < 0.5) return std::nullopt;
  const double others = end.busy_seconds - begin.busy_seconds - own_seconds;
  return std::clamp(others / (elapsed * end.cores), 0.0, 1.0);
}

double job_seconds(const CoreUse& begin, const CoreUse& end, pid_t member) {
  double seconds = 0;
  for (const pid_t process : job_of(end, member))
    if (end.processes.contains(process)) seconds += seconds_between(begin, end, process);
  return seconds;
}

std::string busiest_other(const CoreUse& begin, const CoreUse& end, pid_t member) {
  const std::set<pid_t> job = job_of(end, member);
  double most = 0.1 * (end.time - begin.time);
  std::string text;
  for (const auto& [process, use] : end.processes) {
    const double seconds = seconds_between(begin, end, process);
    if (job.contains(process) || seconds < most) continue;
    most = seconds;
    text =
        fmt::format("{} (process {}), {:.0f} % of a core", use.name, process, 100 * seconds / (end.time - begin.time));
  }
  return text;
}

std::optional<double> load_of_others_since(const std::optional<CoreUse>& begin) {
  const auto end = begin ? sample_core_use() : std::nullopt;
  return end ? load_of_others(*begin, *end, end->own_seconds - begin->own_seconds) : std::nullopt;
}

}  // namespace chimera
