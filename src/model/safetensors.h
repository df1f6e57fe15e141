#pragma once

// Writes tensors to a safetensors file for other programs: the weights and batches of `chimera bench --export`, and
// data of tests. Checkpoints are written by checkpoint/shard.h.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace chimera {

/// Writes CPU tensors and `metadata` (text by name) to a safetensors file; the data begins at a multiple of 8 bytes.
/// The file appears complete or not at all. Creates missing parent folders. Throws Error for a tensor type that the
/// format does not have, ConfigError if the file cannot be written.
void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace chimera
