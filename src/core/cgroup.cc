#include "core/cgroup.h"

#include <sched.h>
#include <sys/sysinfo.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <thread>

#include "core/choices.h"
#include "core/value_text.h"

// The kernel shows a process its control groups in two files: /proc/self/cgroup says in which group it is, for each
// controller of version 1 and once for version 2; /proc/self/mountinfo says where the groups are mounted.
// find_hierarchy() joins the two. A machine may have both versions, so all are read, and the lowest limit counts. See
// cgroups(7).

namespace chimera {
namespace {

namespace fs = std::filesystem;

std::vector<std::string> lines_of(const fs::path& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

std::vector<std::string> words_of(const std::string& line) {
  std::istringstream text(line);
  return {std::istream_iterator<std::string>(text), {}};
}

bool lists(const std::string& list, std::string_view name) {
  return std::ranges::count(split_at_commas(list), name) > 0;
}

/// Parses a limit; nothing for "max" and "-1", which mean no limit.
std::optional<double> number(std::string_view word) {
  const auto value = parse_number<double>(word);
  return value && *value >= 0 ? value : std::nullopt;
}

/// Returns an empty list if a word of the first line is not a number.
std::vector<double> numbers_in(const fs::path& path) {
  const auto lines = lines_of(path);
  std::vector<double> numbers;
  for (const std::string& word : lines.empty() ? std::vector<std::string>{} : words_of(lines.front())) {
    const auto value = number(word);
    // Without a limit, cpu.max has the words "max 100000".
    if (!value) return {};
    numbers.push_back(*value);
  }
  return numbers;
}

/// A container's own group is the mount itself.
fs::path seen_from(const std::string& root, const std::string& group) {
  // Example: if the mount shows only /docker/x, the group /docker/x/job is job below the mount.
  const fs::path relative = fs::path(group).lexically_relative(root);
  if (relative.empty() || relative == "." || *relative.begin() == "..") return {};
  return relative;
}

/// Returns this process's group in the hierarchy of `controller` (version 1), or of version 2 if it is empty, and then
/// the group's ancestors; nothing if the hierarchy is not mounted.
/// A limit of an ancestor holds for its children too, so every directory up to the mount is read, and the lowest limit
/// counts. In a container, the mount may show only the container's own subtree.
std::vector<fs::path> groups_in(const fs::path& root, std::string_view controller) {
  std::string group;
  for (const std::string& line : lines_of(root / "proc/self/cgroup")) {  // NUMBER:CONTROLLERS:GROUP
    const auto first = line.find(':');
    const auto second = first == std::string::npos ? first : line.find(':', first + 1);
    if (second == std::string::npos) continue;
    const std::string controllers = line.substr(first + 1, second - first - 1);
    const bool is_it = controller.empty() ? controllers.empty() : lists(controllers, controller);
    if (is_it) group = line.substr(second + 1);
  }
  if (group.empty()) return {};
  for (const std::string& line : lines_of(root / "proc/self/mountinfo")) {
    const auto words = words_of(line);  // ID PARENT DEVICE ROOT MOUNT OPTIONS [FIELD...] - TYPE SOURCE OPTIONS
    const auto dash = std::find(words.begin(), words.end(), "-");
    if (words.size() < 6 || words.end() - dash < 4) continue;
    const bool is_it = controller.empty() ? dash[1] == "cgroup2" : dash[1] == "cgroup" && lists(dash[3], controller);
    if (!is_it) continue;
    // Without relative_path(), the leading slash of the mount would replace `root`.
    const fs::path mount = root / fs::path(words[4]).relative_path();
    std::vector<fs::path> all;
    // For the group a/b these are MOUNT/a/b, MOUNT/a and MOUNT.
    for (fs::path place = seen_from(words[3], group); !place.empty(); place = place.parent_path())
      all.push_back(mount / place);
    all.push_back(mount);
    return all;
  }
  return {};
}

void lower(double& limit, std::optional<double> to) {
  if (to) limit = std::min(limit, *to);
}

std::optional<double> first_number(const fs::path& path) {
  const auto numbers = numbers_in(path);
  return numbers.empty() ? std::nullopt : std::optional(numbers.front());
}

std::optional<double> cores(const std::vector<double>& quota_and_period) {
  if (quota_and_period.size() != 2 || quota_and_period[1] <= 0) return std::nullopt;
  // Microseconds of processor time in each period, also in microseconds: 150000 in 100000 are one and a half cores.
  return quota_and_period[0] / quota_and_period[1];
}

std::optional<std::uint64_t> kills_in(const fs::path& path) {
  for (const std::string& line : lines_of(path)) {
    const auto words = words_of(line);
    if (words.size() != 2 || words[0] != "oom_kill") continue;
    const auto count = number(words[1]);
    if (count) return static_cast<std::uint64_t>(*count);
  }
  return std::nullopt;
}

}  // namespace

CgroupLimits cgroup_limits(const fs::path& root) {
  CgroupLimits limits;
  for (const fs::path& group : groups_in(root, "")) {
    lower(limits.cores, cores(numbers_in(group / "cpu.max")));
    lower(limits.memory_bytes, first_number(group / "memory.max"));
    lower(limits.swap_bytes, first_number(group / "memory.swap.max"));
  }
  for (const fs::path& group : groups_in(root, "cpu")) {
    const auto quota = first_number(group / "cpu.cfs_quota_us");
    const auto period = first_number(group / "cpu.cfs_period_us");
    if (quota && period) lower(limits.cores, cores({*quota, *period}));
  }
  for (const fs::path& group : groups_in(root, "memory")) {
    const auto memory = first_number(group / "memory.limit_in_bytes");
    lower(limits.memory_bytes, memory);
    const auto both = first_number(group / "memory.memsw.limit_in_bytes");
    // Version 1 limits memory and swap together, version 2 swap alone.
    if (memory && both) lower(limits.swap_bytes, std::max(*both - *memory, 0.0));
  }
  return limits;
}

// The group's own count is best. Version 1 keeps it in another file; the count of the whole machine is the last resort.
std::optional<std::uint64_t> out_of_memory_kills(const fs::path& root) {
  for (const auto& [controller, file] : {std::pair("", "memory.events"), std::pair("memory", "memory.oom_control")}) {
    const std::vector<fs::path> groups = groups_in(root, controller);
    if (const auto kills = groups.empty() ? std::nullopt : kills_in(groups.front() / file)) return kills;
  }
  return kills_in(root / "proc/vmstat");
}

int available_cores(const std::filesystem::path& root) {
  cpu_set_t set;
  CPU_ZERO(&set);
  // The call fails on machines with more cores than the set has bits.
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
