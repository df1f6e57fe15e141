// Entry point for libFuzzer with the one linked Fuzzer. `tools/fuzz` runs it.

#include <cstddef>
#include <cstdint>

#include "fuzz/fuzzer.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static const auto exercise = chimera::testing::all_fuzzers().at(0).exercise;
  exercise({reinterpret_cast<const char*>(data), size});
  return 0;
}
