#include "core/resident_memory.h"

#include <sys/resource.h>

namespace chimera {

double peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024;
}

}  // namespace chimera
