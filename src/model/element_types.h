#pragma once

// Tensors of LibTorch and safetensors files: their types, conversion between types in blocks, and writing of a file.
// Readers and writers of checkpoints and exported models use it.

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>
#include <cstdint>
#include <functional>
#include <map>
#include <string>

#include "core/choices.h"
#include "safetensors/element_type.h"

namespace chimera {

/// Returns the LibTorch type for a type of layers.
[[nodiscard]] at::ScalarType scalar_type(DataType type);

/// Returns the type of safetensors files for a LibTorch type. Throws Error if safetensors does not have the type.
[[nodiscard]] ElementType element_type(at::ScalarType type);

/// Returns the LibTorch type for a type of safetensors files. Throws Error unless it is floating-point.
[[nodiscard]] at::ScalarType floating_type(ElementType type);

/// Number of elements converted at a time. A block fits in a core's cache, and is below malloc()'s mmap threshold:
/// freeing a mapped block would raise this threshold and leave holes in the heap.
inline constexpr std::int64_t kBlockOfElements = 1 << 13;
/// Divides `elements` into blocks of kBlockOfElements; the last may be smaller. Calls `visit(first, count)` for each
/// block in order, with the index of its first element and its size.
void for_each_block(std::int64_t elements, const std::function<void(std::int64_t first, std::int64_t count)>& visit);

/// Converts `values` to another floating-point type, on the CPU. `tensor` is the name for messages. Throws ConfigError
/// if a finite value becomes infinite in F16.
[[nodiscard]] at::Tensor convert(const at::Tensor& values, ElementType type, const std::string& tensor);

/// Writes CPU tensors and `metadata` (text by name) to a safetensors file; the data begins at a multiple of 8 bytes.
/// The file appears complete or not at all. Creates missing parent folders. Throws Error for a tensor type that the
/// format does not have, ConfigError if the file cannot be written.
void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace chimera
