#include "core/resident_memory.h"

#include <sys/resource.h>

#include <cstdlib>  // Defines __GLIBC__
#include <limits>

#ifdef __GLIBC__
#include <malloc.h>
#endif

namespace chimera {

void keep_freed_memory() {
#ifdef __GLIBC__
  constexpr int kNever = std::numeric_limits<int>::max();
  (void)::mallopt(M_TRIM_THRESHOLD, kNever);
  // Large blocks would otherwise be mapped and unmapped each time, which no trim threshold prevents.
  (void)::mallopt(M_MMAP_THRESHOLD, kNever);
#endif
}

double peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  // Linux counts in KiB.
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace chimera
