// libFuzzer: any bytes as a schedule in CSV. `./dev fuzz` runs it.

#include <cstddef>
#include <cstdint>

#include "fuzz/exercise.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  chimera::testing::exercise_csv({reinterpret_cast<const char*>(data), size});
  return 0;
}
