#pragma once
// What a safetensors file will be before any of its elements is written: so that several may write it, each its part.

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "safetensors/tensor_table.h"

namespace chimera {

/// A file to be written.
struct SafetensorsLayout {
  std::string head;                  ///< its first bytes: the header's length, and the header
  std::vector<TensorEntry> tensors;  ///< where the elements of each belong
  std::uint64_t file_bytes = 0;
};

/// Puts tensors, of which name, type and shape are given, one behind the other in the given order, from a multiple of 8
/// bytes on; each is aligned to its elements where those before it are no narrower. `metadata`: texts by name.
/// Throws ConfigError where the header is longer than readers accept.
[[nodiscard]] SafetensorsLayout lay_out(std::vector<TensorEntry> tensors,
                                        const std::map<std::string, std::string>& metadata = {});

/// Bytes of a tensor of that type and shape.
[[nodiscard]] std::uint64_t bytes_of(ElementType type, const std::vector<std::int64_t>& shape);

}  // namespace chimera
