#include "core/cores.h"

#include <sched.h>

#include <algorithm>
#include <thread>

namespace chimera {

int available_cores() {
  cpu_set_t set;
  CPU_ZERO(&set);
  const int count = ::sched_getaffinity(0, sizeof(set), &set) == 0
                        ? CPU_COUNT(&set)
                        : static_cast<int>(std::thread::hardware_concurrency());
  return std::max(count, 1);
}

}  // namespace chimera
