// Fuzzes the index of weights in several files.

#include "fuzz/fuzzer.h"
#include "safetensors/weight_files.h"

namespace chimera::testing {
namespace {

void exercise_index(std::string_view bytes) {
  const auto map = read_or_refuse([&] { return read_weight_map(kSource, bytes); });
  if (!map) return;
  for (const auto& [tensor, file] : *map) {
    require(file.find('/') == std::string::npos && file.find('\0') == std::string::npos && file[0] != '.',
            "no file lies outside of the folder");
  }
}

}  // namespace

const Fuzzer kWeightIndex("weight_index", exercise_index);

}  // namespace chimera::testing
