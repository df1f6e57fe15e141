#pragma once
// Reads the models that tests/support/hugging_face.py writes.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace chimera {

/// A safetensors file in memory: u64 length of the header, a JSON header, then the raw little-endian elements.
struct LoadedTensors {
  std::map<std::string, std::string> metadata;
  std::map<std::string, at::Tensor> tensors;  ///< float64, float32, int64 and bool
};

/// Throws Error if the file is malformed.
[[nodiscard]] LoadedTensors read_safetensors(const std::string& path);

}  // namespace chimera
