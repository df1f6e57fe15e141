// Fuzzes the index of weights in several files.

#include <cstring>

#include "fuzz/fuzzer.h"
#include "safetensors/weight_files.h"

namespace chimera::testing {
namespace {

void exercise_index(std::string_view bytes) {
  const ReadBytes read = [bytes](std::uint64_t offset, std::span<std::byte> into) {
    require(offset <= bytes.size() && into.size() <= bytes.size() - offset, "no byte beyond the file is read");
    std::memcpy(into.data(), bytes.data() + offset, into.size());
  };
  const auto map = read_or_refuse([&] { return read_weight_map(kSource, bytes.size(), read); });
  if (!map) return;
  for (const auto& [tensor, file] : *map) {
    require(file.find('/') == std::string::npos && file.find('\0') == std::string::npos && file[0] != '.',
            "no file lies outside of the folder");
  }
}

}  // namespace

const Fuzzer kWeightIndex("weight_index", exercise_index);

}  // namespace chimera::testing
