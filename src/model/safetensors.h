#pragma once
// Tensors as a file that every framework reads: safetensors. A u64 length, a JSON header, the raw elements.
// Source: github.com/huggingface/safetensors, README, "Format".

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace chimera {

/// Writes CPU tensors under their names, and `metadata` (text by name), little endian, the elements from a multiple of
/// 8 bytes on. The file appears whole or not at all.
/// Throws Error for a type that the format does not have, ConfigError where the file cannot be written.
void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace chimera
