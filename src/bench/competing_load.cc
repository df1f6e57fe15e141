#include "bench/competing_load.h"

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace chimera {
namespace {

/// Seconds in which cores were not idle since the machine started.
double busy_seconds() {
  std::ifstream file("/proc/stat");
  std::string name;
  double user = 0, nice = 0, system = 0, idle = 0, waiting = 0, irq = 0, soft_irq = 0, stolen = 0;
  file >> name >> user >> nice >> system >> idle >> waiting >> irq >> soft_irq >> stolen;
  return (user + nice + system + irq + soft_irq + stolen) / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

double cpu_seconds(int who) {
  rusage usage{};
  ::getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) * 1e-6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

double own_seconds() { return cpu_seconds(RUSAGE_SELF) + cpu_seconds(RUSAGE_CHILDREN); }

}  // namespace

CompetingLoad::CompetingLoad() : busy_(busy_seconds()), own_(own_seconds()) {}

double CompetingLoad::share() const {
  const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - start_;
  const double cores = static_cast<double>(::sysconf(_SC_NPROCESSORS_ONLN));
  const double others = busy_seconds() - busy_ - (own_seconds() - own_);
  return std::clamp(others / (wall.count() * cores), 0.0, 1.0);
}

}  // namespace chimera
