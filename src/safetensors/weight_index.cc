#include "safetensors/weight_index.h"

#include <nlohmann/json.hpp>

namespace chimera {

std::string weight_index(const std::vector<std::pair<std::string, std::vector<TensorEntry>>>& files) {
  nlohmann::ordered_json map = nlohmann::ordered_json::object();
  std::uint64_t total = 0;
  for (const auto& [file, tensors] : files) {
    for (const TensorEntry& tensor : tensors) {
      map[tensor.name] = file;
      total += tensor.bytes;
    }
  }
  const nlohmann::ordered_json index = {{"metadata", {{"total_size", total}}}, {"weight_map", std::move(map)}};
  return index.dump(2) + "\n";
}

}  // namespace chimera
