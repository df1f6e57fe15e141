#pragma once
// Checkpoints of `chimera train` for Python (docs/checkpoints.md).

#include <torch/csrc/utils/pybind.h>

namespace chimera {

/// Adds the checkpoint functions of _training.pyi.
void bind_checkpoints(pybind11::module_& module);

}  // namespace chimera
