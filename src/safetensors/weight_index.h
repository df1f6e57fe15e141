#pragma once
// Writing `model.safetensors.index.json`, which safetensors/weight_map.h reads.

#include <string>
#include <utility>
#include <vector>

#include "safetensors/tensor_table.h"

namespace chimera {

/// The index of weights that lie in several files: the name of each file, and its tensors.
[[nodiscard]] std::string weight_index(const std::vector<std::pair<std::string, std::vector<TensorEntry>>>& files);

}  // namespace chimera
