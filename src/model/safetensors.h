#pragma once

// Writes tensors for other programs: the weights and batches of `train --export-job`, and cases of tests.

#include <ATen/core/Tensor.h>

#include <map>
#include <string>

namespace chimera {

/// Writes CPU tensors and `metadata` (text by name) to a safetensors file, with data from a multiple of 8 bytes on. The
/// file appears complete or not at all, and missing parent folders are made. Throws Error for a type that the format
/// does not have, ConfigError if the file cannot be written.
void write_safetensors(const std::string& path, const std::map<std::string, at::Tensor>& tensors,
                       const std::map<std::string, std::string>& metadata = {});

}  // namespace chimera
