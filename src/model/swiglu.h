#pragma once
// The gated activation of Llama's feed-forward layer.
// Source: Shazeer, "GLU Variants Improve Transformer", 2020.

#include <ATen/core/Tensor.h>

namespace chimera {

/// silu(gate) * up, where silu(x) = x sigmoid(x); all [..., F]. Keeps its two inputs, not silu(gate), which backward
/// makes again.
[[nodiscard]] at::Tensor swiglu(const at::Tensor& gate, const at::Tensor& up);

}  // namespace chimera
