#include "bench/machine_line.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <ctime>
#include <fstream>

#include "core/cgroup.h"

namespace chimera {
namespace {

std::string processor() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);)
    if (line.starts_with("model name")) return line.substr(line.find(": ") + 2);
  return "unknown processor";
}

#ifdef NDEBUG
constexpr const char* kBuild = "release";
#else
constexpr const char* kBuild = "debug";
#endif

}  // namespace

std::string load_average() {
  std::string minute = "unknown";
  // The first number is the mean of the last minute.
  std::ifstream("/proc/loadavg") >> minute;
  return minute;
}

std::string machine_line(const std::string& library) {
  return fmt::format("{:%Y-%m-%d %H:%M} UTC, {}, {} cores, load {}{}{}, {} build", fmt::gmtime(std::time(nullptr)),
                     processor(), available_cores(), load_average(), library.empty() ? "" : ", ", library, kBuild);
}

}  // namespace chimera
