#pragma once
// What GPUs could do, as their makers say.

#include <string_view>

namespace chimera {

/// Products of bfloat16 without sparsity, accumulated in float32, in FLOPs a second, by NVIDIA's data sheet of the GPU
/// that calls itself `name` ("NVIDIA H200"); 0 where we do not have that.
[[nodiscard]] double bfloat16_peak(std::string_view name);

}  // namespace chimera
